"""Parse text to a tree, or to a reason why there is none."""

from __future__ import annotations

import ast
import re
import warnings

#: Larger ones are generated, or no scripts at all.
MOST_BYTES = 4_000_000
#: type parameters (3.12), which an older interpreter does not know
_TYPE_PARAMETERS = re.compile(
    r"^([ \t]*(?:async[ \t]+def|def|class)[ \t]+\w+)(\[[^\[\]\n]*(?:\[[^\[\]\n]*\][^\[\]\n]*)*\])", re.MULTILINE
)
_TYPE_ALIAS = re.compile(r"^([ \t]*)type([ \t]+)(\w+)(?=[ \t]*=[^=])", re.MULTILINE)
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
        if older != text:
            return parse(older)
        if _PYTHON_2.search(text):
            raise UnreadableScript(f"line {error.lineno} is Python 2") from None
        raise UnreadableScript(f"line {error.lineno} is no Python of this version: {error.msg}") from None
    except ValueError as error:
        raise UnreadableScript(str(error)) from None
    except (RecursionError, MemoryError):
        raise UnreadableScript("its expressions are nested too deeply") from None


def _without_type_parameters(text: str) -> str:
    """`def f[T](x: T)` as `def f   (x: T)`, `type X = int` as `X      = int`: lines and columns of the rest stay."""
    plain = _TYPE_PARAMETERS.sub(lambda m: m[1] + " " * len(m[2]), text)
    return _TYPE_ALIAS.sub(lambda m: m[1] + m[3] + "    " + m[2], plain)
