"""Parse Slurm's notation of many hosts: `n[1-3,07],gpu-a[01-02]-ib,login`. Pure."""

from __future__ import annotations

import itertools
import math
import re

_PIECE = re.compile(r"\[([^\[\]]*)\]|([^\[\]]+)")
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
#: More names than any cluster has: a slip, or a broken variable.
_MOST = 1_000_000


def expand(text: str) -> list[str]:
    """The names, in Slurm's order. Raises ValueError with what is wrong.

    Source: `man slurm.conf`, NodeName; `scontrol show hostnames` does the same, and needs a controller.
    """
    names: list[str] = []
    for word in _words(text):
        choices = [_numbers(inside) if inside or not plain else [plain] for inside, plain in _PIECE.findall(word)]
        if len(names) + math.prod(map(len, choices)) > _MOST:
            raise ValueError(f"{word} names more than {_MOST:,} hosts")
        names += ["".join(parts) for parts in itertools.product(*choices)]
    return names


def _words(text: str) -> list[str]:
    """At commas outside brackets."""
    words, depth, word = [], 0, ""
    for letter in text.strip():
        depth += {"[": 1, "]": -1}.get(letter, 0)
        if depth not in (0, 1):
            raise ValueError(f"brackets do not match in {text!r}")
        if letter == "," and depth == 0:
            words.append(word)
            word = ""
        else:
            word += letter
    if depth:
        raise ValueError(f"brackets do not match in {text!r}")
    return [w for w in (*words, word) if w]


def _numbers(text: str) -> list[str]:
    """`1-3,07` -> 1 2 3 07; a leading zero gives the width."""
    found: list[str] = []
    for piece in text.split(","):
        match = _RANGE.fullmatch(piece.strip())
        if match is None:
            raise ValueError(f"[{text}] is no list of numbers and ranges")
        low, high = match[1], match[2] or match[1]
        if int(high) < int(low) or int(high) - int(low) + len(found) > _MOST:
            raise ValueError(f"{piece} is no range")
        found += [str(n).zfill(len(low)) for n in range(int(low), int(high) + 1)]
    return found
