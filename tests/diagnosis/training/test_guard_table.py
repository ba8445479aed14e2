"""The fields in the templates of the guard tables are fields that the guards record."""

import ast
from pathlib import Path
from string import Formatter

import pytest

import distdbg

PACKAGE = Path(distdbg.__file__).parent
FAMILIES = ("parallel", "training")


def rows() -> list[object]:
    found = []
    for family in FAMILIES:
        tree = ast.parse((PACKAGE / "diagnosis" / family / "guard_table.py").read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "GuardRow":
                values = [ast.literal_eval(argument) for argument in node.args]
                found.append(pytest.param(values[0], " ".join(values[1:3]), id=values[0]))
    return found


def guards() -> dict[str, ast.Module]:
    """By a guard's id, the module that it stands in."""
    found = {}
    for path in (PACKAGE / "worker" / "guards").glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["id"]:
                found[ast.literal_eval(node.value)] = tree
    return found


@pytest.mark.parametrize(("guard", "template"), rows())
def test_a_row_names_fields_that_its_guard_records(guard, template):
    tree = guards()[guard]
    recorded = {keyword.arg for node in ast.walk(tree) if isinstance(node, ast.Call) for keyword in node.keywords}
    recorded |= {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    wanted = {name for _, name, _, _ in Formatter().parse(template) if name} - {"place"}
    assert wanted <= recorded, f"{guard} does not record {sorted(wanted - recorded)}"
