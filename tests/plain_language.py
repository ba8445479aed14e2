"""Measure how plain the names and the prose of a package are: shares of names and phrases that a newcomer reads twice.

`python -m tests.plain_language PACKAGE` lists them with file and line.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "distdbg"
TOP_LEVEL = "top level"
#: A function's name begins with a verb, or is a noun; `as_x`, `to_x` and `from_x` are conversions.
_NO_VERBS = frozenset(
    "of with by in on at for without around beside behind before after inside between near under over through".split()
)
_PARTICIPLES = frozenset(
    "made told said found known shown kept left given taken seen begun sent written held met drawn chosen gone".split()
)
_VERBS_IN_ED = frozenset("feed need seed speed embed shed exceed proceed shred indeed".split())
#: Names of variables and parameters that say nothing of the value.
_FILLERS = frozenset(
    """one its found given made said told there here more own whole wanted seen known kept what left at most other
    others place same around again such words works theirs held meant this that way ways few asked then now had
    """.split()
)
_IDIOMS = re.compile(
    r"\b(?:of which|(?:is|are|be|was|were) (?:told|had)|comes? (?:to|by)|came to|goes (?:by|on)|went on|stands?|nobody"
    r"|anybody|somebody|whoever|beside|none where|(?:is|are|was|were) no \w+|so (?:many|few|much)"
    r"|what (?:is|was|it|they|a|the|no|none|may|has|does|gives?|made|holds?|keeps?)"
    r"|where (?:it|they|there|one|none|nobody|nothing|all|that|some)|by itself|by themselves|of (?:its|their) own"
    r"|for good|once more|no more|leaves? alone|is its|alone|says|said|heard|anew|may not be)\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"[A-Za-z']+")


@dataclass
class Language:
    """What was counted in some files. Each list has `file:line text`, for a person who repairs it."""

    functions: int = 0
    bindings: int = 0
    words: int = 0
    odd_names: list[str] = field(default_factory=list)
    fillers: list[str] = field(default_factory=list)
    idioms: list[str] = field(default_factory=list)
    classes: Counter[str] = field(default_factory=Counter)

    @property
    def shares(self) -> tuple[float, float, float]:
        """Odd names in 100 functions, fillers in 100 bindings, idioms in 1,000 words."""
        return (
            100 * len(self.odd_names) / max(1, self.functions),
            100 * len(self.fillers) / max(1, self.bindings),
            1000 * len(self.idioms) / max(1, self.words),
        )


def packages() -> list[str]:
    return [*sorted(p.name for p in PACKAGE.iterdir() if p.is_dir() and any(p.rglob("*.py"))), TOP_LEVEL]


def measure(package: str) -> Language:
    paths = PACKAGE.glob("*.py") if package == TOP_LEVEL else (PACKAGE / package).rglob("*.py")
    language = Language()
    for path in sorted(paths):
        _measure_file(path, language)
    return language


def is_odd(function: str) -> bool:
    first = function.strip("_").partition("_")[0]
    in_ed = first.endswith("ed") and len(first) > 3 and first not in _VERBS_IN_ED
    return in_ed or first in _NO_VERBS or first in _PARTICIPLES


def _measure_file(path: Path, language: Language) -> None:
    source = path.read_text(encoding="utf-8")
    name = path.relative_to(ROOT)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("__"):
            language.functions += 1
            language.odd_names += [f"{name}:{node.lineno} {node.name}"] if is_odd(node.name) else []
        elif isinstance(node, ast.ClassDef):
            language.classes[node.name] += 1
        if (bound := _bound_name(node)) is not None:
            language.bindings += 1
            language.fillers += [f"{name}:{node.lineno} {bound}"] if bound.strip("_") in _FILLERS else []  # type: ignore[attr-defined]
    for line, text in _prose(source):
        language.words += len(_WORD.findall(text))
        language.idioms += [f"{name}:{line} {found[0]}" for found in _IDIOMS.finditer(text)]


def _bound_name(node: ast.AST) -> str | None:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id
    return node.arg if isinstance(node, ast.arg) and node.arg not in ("self", "cls") else None


def _prose(source: str) -> Iterator[tuple[int, str]]:
    """(line, text) of each comment and docstring."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("#: ")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if text := ast.get_docstring(node):
                yield node.body[0].lineno, text


if __name__ == "__main__":
    found = measure(sys.argv[1])
    print("\n".join([*found.odd_names, *found.fillers, *found.idioms]))
