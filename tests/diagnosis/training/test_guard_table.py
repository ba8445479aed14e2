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
                found.append(pytest.param(family, values[0], " ".join(values[1:3]), id=values[0]))
    return found


@pytest.mark.parametrize(("family", "guard", "template"), rows())
def test_a_row_names_fields_that_its_guard_records(family, guard, template):
    source = PACKAGE / "worker" / "guards" / family / f"{guard.replace('-', '_')}.py"
    tree = ast.parse(source.read_text(encoding="utf-8"))
    recorded = {keyword.arg for node in ast.walk(tree) if isinstance(node, ast.Call) for keyword in node.keywords}
    recorded |= {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    wanted = {name for _, name, _, _ in Formatter().parse(template) if name} - {"place"}
    assert wanted <= recorded, f"{source.name} does not record {sorted(wanted - recorded)}"
