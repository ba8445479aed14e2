"""Parse text to a tree, or to a reason why there is none."""

from __future__ import annotations

import ast
import re
import symtable
import warnings
from contextlib import suppress

#: Larger ones are generated, or no scripts at all.
MOST_BYTES = 1_000_000
#: type parameters (3.12), which an older interpreter does not know
_TYPE_PARAMETERS = re.compile(
    r"^([ \t]*(?:async[ \t]+def|def|class)[ \t]+\w+)(\[[^\[\]\n]*(?:\[[^\[\]\n]*\][^\[\]\n]*)*\])", re.MULTILINE
)
_TYPE_ALIAS = re.compile(r"^([ \t]*)type([ \t]+)(\w+)(?=[ \t]*=[^=])", re.MULTILINE)
#: where an f-string of one line begins
_F_STRING = re.compile(r"(?<![\w\"'])(?:[fF][rR]?|[rR][fF])([\"'])(?!\1\1)")
_PYTHON_2 = re.compile(r"^\s*(?:print\s+[\"'\w]|except\s+[\w.]+\s*,\s*\w+\s*:|exec\s+[\"'])", re.MULTILINE)


class UnreadableScript(Exception):
    """This text is no Python that can be read; the text says why, as the end of "skipped, because …"."""


def parse(text: str) -> ast.Module:
    """A script as a tree. Raises UnreadableScript."""
    if len(text) > MOST_BYTES:
        raise UnreadableScript(f"it is larger than {MOST_BYTES // 1_000_000} MB")
    if "\0" in text:
        raise UnreadableScript(f"line {text.count(chr(10), 0, text.index(chr(0))) + 1} has a NUL byte: it is no text")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the file's own questionable escapes are not ours to print
            return ast.parse(text)
    except SyntaxError as error:
        older = _without_type_parameters(text)
        if "f-string" in (error.msg or ""):
            older = _with_other_quotes(older)
        if older != text:
            return parse(older)
        if _PYTHON_2.search(text):
            raise UnreadableScript(f"line {error.lineno} is Python 2") from None
        raise UnreadableScript(f"line {error.lineno} is no Python of this version: {error.msg}") from None
    except ValueError as error:
        raise UnreadableScript(str(error)) from None
    except (RecursionError, MemoryError):
        raise UnreadableScript("its expressions are nested too deeply") from None


def check_readable(text: str) -> None:
    """Whether it is a script, without its tree, which takes longer to build than to check. Raises UnreadableScript."""
    if len(text) < MOST_BYTES and "\0" not in text:
        with suppress(SyntaxError, ValueError, RecursionError, MemoryError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            symtable.symtable(text, "<unknown>", "exec")
            return
    parse(text)  # also `return` outside of a function: a tree it has


def _without_type_parameters(text: str) -> str:
    """`def f[T](x: T)` as `def f   (x: T)`, `type X = int` as `X      = int`: lines and columns of the rest stay."""
    plain = _TYPE_PARAMETERS.sub(lambda m: m[1] + " " * len(m[2]), text)
    return _TYPE_ALIAS.sub(lambda m: m[1] + m[3] + "    " + m[2], plain)


def _with_other_quotes(text: str) -> str:
    """`f"{d["x"]}"` (3.12) as `f"{d['x']}"`: each letter stays where it is."""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if _F_STRING.search(line):
            lines[number] = _quotes_changed(line)
    return "\n".join(lines)


def _quotes_changed(line: str) -> str:
    letters, at = list(line), 0
    while (match := _F_STRING.search(line, at)) is not None:
        quote, depth, at = match[1], 0, match.end()
        while at < len(line) and (depth or line[at] != quote):
            if not depth and (line[at] == "\\" or line.startswith("{{", at)):
                at += 1  # the next letter says nothing
            elif line[at] in "{}":
                depth = max(depth + (1 if line[at] == "{" else -1), 0)
            elif line[at] == quote:
                letters[at] = "'" if quote == '"' else '"'
            at += 1
        at += 1
    return "".join(letters)
