"""Quote words for a shell, and keep secrets out of them: a variable stands for each. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from distdbg.masking import MASK, mask, mask_argv

_PREFIX = "DISTDBG_SECRET_"


@dataclass(frozen=True)
class ShellWord:
    """A word as the shell takes it, and the variables that must be set for it: name -> value."""

    text: str
    secrets: dict[str, str] = field(default_factory=dict)


def quote(text: str) -> str:
    """A word for the shell. Bytes that are no UTF-8, and control characters but newline, are written in $'…'."""
    if all(c.isprintable() or c == "\n" for c in text):
        return shlex.quote(text)
    raw = text.encode("utf-8", "surrogateescape")
    plain = (chr(b) if 0x20 <= b < 0x7F and b not in b"\\'" else f"\\{b:03o}" for b in raw)
    return "$'" + "".join(plain) + "'"


def assignment(name: str, value: str, before: str = "") -> ShellWord:
    """The word `<before>NAME=VALUE`; the variable of that name stands for a secret value."""
    if mask(name, value) == value:
        return ShellWord(quote(f"{before}{name}={value}"))
    variable = name if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) else _variable(name)
    return ShellWord(f'{quote(f"{before}{name}=")}"${{{variable}?}}"', {variable: value})


def argument_words(argv: Sequence[str]) -> Iterator[ShellWord]:
    """The words of a command line; a variable stands for the value of an option that is secret."""
    option, unnamed = "", 0
    values: dict[str, str] = {}  # an option may be repeated with another value
    for word, shown in zip(argv, mask_argv(argv), strict=True):
        name, equals, value = word.partition("=")
        if word == shown:
            yield ShellWord(quote(word))
        elif equals and shown.startswith(f"{name}="):
            variable = _variable_for(name, value, values)
            yield ShellWord(f'{quote(f"{name}=")}"${{{variable}?}}"', {variable: value})
        else:
            named = shown == MASK and option.startswith("-")
            unnamed += not named
            variable = _variable_for(option if named else str(unnamed), word, values)
            yield ShellWord(f'"${{{variable}?}}"', {variable: word})
        option = word


def _variable_for(name: str, value: str, values: dict[str, str]) -> str:
    """Return the variable of this name, or the next one that does not stand for another value."""
    variable = _variable(name)
    while values.setdefault(variable, value) != value:
        variable += "_"
    return variable


def _variable(name: str) -> str:
    return _PREFIX + re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_").upper()
