"""Mutations that know the structure of an input: of plain values, of lines, of bytes."""

from __future__ import annotations

import contextlib
import gzip
import json
import pickle
import random
import re
from collections.abc import Callable
from typing import Any

_HUGE = 10**18
#: What a field may hold that its reader did not think of.
ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 255, 256, 2**31, 2**63 - 1, 2**63, 2**64, -(2**63), _HUGE, -_HUGE, 10**40, 0.5,
    -0.0, 1e300, 1e-300, float("nan"), float("inf"), float("-inf"), "", " ", "0", "-1", "x", "\x00", "\ud800", "\u202e",
    "[0, 1]", "[0-199999]", "0-7", "²", "../../etc/passwd", "/dev/zero", "x" * 5000, "a:b:c", [], {}, [[]], [{}],
    [None], {"": None}, {"a": 1}, [1, "a", None], list(range(300)), ["x"] * 300,
)  # fmt: skip
_ODD_WORDS = (
    "-1",
    "0",
    "1",
    "99999999999999999999",
    "nan",
    "inf",
    "1e400",
    "",
    "²",
    "\x00",
    "[",
    "]",
    "{",
    ":",
    "\u2028",
)
_NUMBER = re.compile(r"-?\d+")


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


def mutated_value(rng: random.Random, value: Any) -> Any:
    """`value`, made of fresh plain containers, with one to four things changed in place."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        places = list(_places(value))
        if not places:
            return rng.choice(ODD_VALUES)
        holder, key = rng.choice(places)
        kind = rng.randrange(10)
        if kind == 0:
            del holder[key]
        elif kind == 1:
            other, where = rng.choice(places)
            holder[key] = (
                _copied(other[where]) if where in other or (isinstance(other, list) and where < len(other)) else []
            )
        elif kind == 2 and isinstance(holder, list):
            holder.insert(key, _copied(holder[key]))
        elif kind == 3:
            holder[key] = [holder[key]]
        elif kind == 4:
            holder[key] = nested(rng.choice((10, 200)))
        elif kind == 5 and isinstance(holder[key], int):
            holder[key] = holder[key] + rng.choice((-1, 1, 2**31, -(2**33)))
        elif kind == 6 and isinstance(holder[key], str):
            holder[key] = mutated_text(rng, holder[key])
        else:
            holder[key] = _copied(rng.choice(ODD_VALUES))
    return value


def _places(value: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        holder = waiting.pop()
        items = holder.items() if isinstance(holder, dict) else enumerate(holder) if isinstance(holder, list) else ()
        for key, inner in items:
            found.append((holder, key))
            waiting.append(inner)
    return found


def _copied(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value)) if isinstance(value, (list, dict)) else value


def mutated_text(rng: random.Random, text: str) -> str:
    for _ in range(rng.choice((1, 1, 2, 4))):
        lines = text.split("\n")
        at = rng.randrange(len(lines))
        kind = rng.randrange(8)
        if kind == 0:
            del lines[at]
        elif kind == 1:
            lines.insert(at, rng.choice(lines))
        elif kind == 2:
            lines[at] = lines[at][: rng.randrange(len(lines[at]) + 1)]
        elif kind == 3:
            lines[at] += rng.choice((" ", "a", "(", "[", "\t", "0", "'", "\\")) * rng.choice((1, 100, 20_000))
        elif kind == 4:
            numbers = list(_NUMBER.finditer(lines[at]))
            if numbers:
                one = rng.choice(numbers)
                lines[at] = lines[at][: one.start()] + rng.choice(_ODD_WORDS) + lines[at][one.end() :]
        elif kind == 5:
            place = rng.randrange(len(lines[at]) + 1)
            lines[at] = lines[at][:place] + rng.choice(_ODD_WORDS) + lines[at][place:]
        elif kind == 6:
            lines[at : at + 1] = [lines[at]] * rng.choice((3, 300))
        else:
            lines = lines[: at + 1]
        text = "\n".join(lines)[:200_000]
    return text


def mutated_bytes(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(changed) + 1)
        kind = rng.randrange(4)
        if kind == 0:
            del changed[at:]
        elif kind == 1:
            changed[at : at + rng.choice((0, 1, 8))] = rng.choice(
                (b"", b"\0", b"\xff" * 8, b"\x7f\xff\xff\xff", b"]" * 300)
            )
        elif at < len(changed):
            changed[at] ^= 1 << rng.randrange(8)
    return bytes(changed)


Mutation = Callable[[random.Random, bytes], bytes]


def of_json(rng: random.Random, seed: bytes) -> bytes:
    if rng.randrange(12) == 0:
        return mutated_bytes(rng, seed)
    value = mutated_value(rng, json.loads(seed))
    return json.dumps(value).encode("utf-8", "surrogatepass")


def of_json_lines(rng: random.Random, seed: bytes) -> bytes:
    lines = [line for line in seed.split(b"\n") if line]
    for _ in range(rng.choice((1, 1, 2))):
        at = rng.randrange(len(lines))
        kind = rng.randrange(8)
        if kind == 0:
            lines.insert(at, rng.choice(lines))
        elif kind == 1 and len(lines) > 1:
            del lines[at]
        else:
            with contextlib.suppress(ValueError):  # no JSON any more
                lines[at] = of_json(rng, lines[at])
    return b"\n".join(lines) + (b"\n" if rng.randrange(8) else b"")


def of_pickle(rng: random.Random, seed: bytes) -> bytes:
    if rng.randrange(3) == 0:
        return mutated_bytes(rng, seed)
    return pickle.dumps(mutated_value(rng, pickle.loads(seed)), rng.choice((2, 4)))


def of_text(rng: random.Random, seed: bytes) -> bytes:
    if rng.randrange(8) == 0:
        return mutated_bytes(rng, seed)
    return mutated_text(rng, seed.decode()).encode("utf-8", "surrogatepass")


def of_bytes(rng: random.Random, seed: bytes) -> bytes:
    return mutated_bytes(rng, seed)


def packed(inner: Mutation) -> Mutation:
    """Of a gzip file: mostly of what is in it."""

    def mutate(rng: random.Random, seed: bytes) -> bytes:
        if rng.randrange(4) == 0:
            return mutated_bytes(rng, seed)
        return gzip.compress(inner(rng, gzip.decompress(seed)), 1)

    return mutate
