"""Parse a command line into parts that a search can change: the launcher's options, and the program's own."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace

from distdbg.errors import UsageError
from distdbg.shrink.checkpoint.layer_names import number_of

#: Two names of one option.
_SAME = {"--nodes": "--nnodes"}


@dataclass(frozen=True)
class Command:
    """`launcher`: the words that call `distdbg launch`, empty for any other command. `options`: what it is given, a
    word each (`--nproc-per-node=2`). `program`: the program with its arguments, or the whole other command."""

    launcher: tuple[str, ...]
    options: tuple[str, ...]
    program: tuple[str, ...]

    @property
    def text(self) -> str:
        """The command as a person types it."""
        return shlex.join((*self.launcher, *self.options, *self.program))

    def option(self, name: str) -> str | None:
        """The last value of a launcher's option, None where it has none."""
        names = (f"{name}=", f"{_SAME.get(name, name)}=")
        return next((o.partition("=")[2] for o in reversed(self.options) if o.startswith(names)), None)

    def with_option(self, name: str, value: object) -> Command:
        names = (f"{name}=", f"{_SAME.get(name, name)}=")
        return replace(self, options=(*(o for o in self.options if not o.startswith(names)), f"{name}={value}"))

    def argument(self, flag: str) -> str | None:
        """The value of one of the program's own arguments, `--flag 3`, `--flag=3` or `key=3`; the last counts."""
        place = _place(self.program, flag)
        return None if place is None else place[1]

    def with_argument(self, flag: str, value: object) -> Command:
        place = _place(self.program, flag)
        if place is None:
            new = (flag, str(value)) if flag.startswith("-") else (f"{flag}={value}",)
            return replace(self, program=(*self.program, *new))
        at, _, joined = place
        word = f"{flag}={value}" if joined else str(value)
        return replace(self, program=(*self.program[:at], word, *self.program[at + 1 :]))


def _place(words: Sequence[str], flag: str) -> tuple[int, str, bool] | None:
    """(the word that holds the value, the value, whether the flag is in the same word)"""
    for at in range(len(words) - 1, 0, -1):
        if words[at].startswith(f"{flag}="):
            return at, words[at][len(flag) + 1 :], True
        if words[at] == flag and flag.startswith("-") and at + 1 < len(words):
            return at + 1, words[at + 1], False
    return None


@dataclass(frozen=True)
class Varied:
    """One `--vary`: `high` None is the command's own value."""

    flag: str
    low: int
    high: int | None
    step: int


def varied(text: str) -> Varied:
    """FLAG=LOW, FLAG=LOW:HIGH or FLAG=LOW:HIGH:STEP, in whole numbers. Raises UsageError."""
    flag, equals, values = text.rpartition("=")
    numbers = [number for value in values.split(":") if (number := number_of(value)) is not None]
    if not flag or not equals or not 1 <= len(numbers) <= 3 or len(numbers) <= values.count(":"):
        raise UsageError(f"--vary {text!r} is not FLAG=LOW:HIGH", "Write --vary --seq-len=64:4096, or =64:4096:64.")
    low, high, step = numbers[0], numbers[1] if len(numbers) > 1 else None, numbers[2] if len(numbers) > 2 else 1
    if step < 1 or (high is not None and low > high):
        raise UsageError(f"--vary {text!r}: {'the step is 0' if step < 1 else f'{low} is more than {high}'}",
                         "Write LOW:HIGH, or LOW:HIGH:STEP for multiples.")  # fmt: skip
    return Varied(flag, low, high, step)
