"""Syntax of a newer Python than this one is read all the same, and nothing moves."""

from __future__ import annotations

import ast

import pytest

from distdbg.lint.script.parsing import UnreadableScript, check_readable, parse

NEWER = """\
type Batch = dict[str, int]


class Loop[T: (int, str)]:
    async def run[*Ts](self, x: T): pass


def forever[K: dict[str, int], V](loader): return loader
"""


def test_type_parameters_are_read_by_every_python() -> None:
    tree = parse(NEWER)
    (name,) = [n for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id == "loader"]
    assert (name.lineno, NEWER.splitlines()[7][name.col_offset :]) == (8, "loader")
    assert {n.name for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.ClassDef))} == {"Loop", "forever"}


def test_quotes_inside_an_f_string_are_read_by_every_python() -> None:
    text = 'x = f"{d["a"]} {{ {e["b"]:>{w["c"]}}"; y = d["z"]\ndef f[T](x: T): return f\'{g(\'n\')}\'\n'
    constants = {n.value: n.col_offset for n in ast.walk(parse(text)) if isinstance(n, ast.Constant)}
    assert constants["z"] == text.index('"z"')
    assert {"a", "b", "c", "n"} <= set(constants)


@pytest.mark.parametrize("text", [NEWER, "return 1\n", "x = 1\nglobal x\n", "def f(a, a): break\n", ""])
def test_what_has_a_tree_is_readable(text: str) -> None:
    """Errors that only a compiler finds are none here."""
    check_readable(text)
    parse(text)


@pytest.mark.parametrize("text", ["print 'x'\n", "if:\n", "x = '\0'\n", "(" * 300 + ")" * 300])
def test_what_has_no_tree_is_not_readable_for_the_same_reason(text: str) -> None:
    with pytest.raises(UnreadableScript) as one:
        check_readable(text)
    with pytest.raises(UnreadableScript) as other:
        parse(text)
    assert str(one.value) == str(other.value)
