"""Read lines of JSON from a run directory: truncated, foreign or hostile lines are evidence too."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from distdbg.model import MOST_RANKS

#: Bytes that the values of one text may take: 16,384 ranks' part of a dump takes 200 MiB.
MOST_MEMORY = 1 << 30
#: Bytes of a list, of an object with its first few keys, and of any other value with its place in a list.
_A_LIST, _AN_OBJECT, _A_VALUE = 64, 240, 40
_MOST = 2**63


class OutOfBounds(ValueError):
    """Says what is implausible about a text: its size, its depth, its numbers."""


def parse(text: str | bytes, most: int = MOST_MEMORY, *, strict: bool = True) -> object:
    """Any JSON value; with `strict` no control characters in its texts.

    Raises ValueError, OutOfBounds where its values could take more than `most` bytes.
    """
    if isinstance(text, bytes):
        text = text.decode(json.detect_encoding(text), "surrogatepass")
    if len(text) * _AN_OBJECT > most:  # else it cannot
        needs = len(text) + _A_LIST * text.count("[") + _AN_OBJECT * text.count("{") + _A_VALUE * text.count(",")
        if needs > most:
            raise OutOfBounds(
                f"its values could take {needs >> 20:,} MiB of memory, and at most {most >> 20:,} MiB are used"
            )
    try:
        value: object = json.loads(text, strict=strict)
    except RecursionError:
        raise OutOfBounds("it is nested deeper than any file that distdbg reads") from None
    except json.JSONDecodeError:
        raise
    except ValueError:  # Python's own limit
        raise OutOfBounds("it holds a number with thousands of digits") from None
    return value


def objects(text: str) -> tuple[list[tuple[int, dict[str, Any]]], list[int]]:
    """([(1-based line, object)], lines that are no JSON object). A node that dies cuts its last line short."""
    found: list[tuple[int, dict[str, Any]]] = []
    bad: list[int] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        value = whole(line)
        if value is None:
            bad.append(number)
        else:
            found.append((number, value))
    return found, bad


def whole(text: str) -> dict[str, Any] | None:
    """One JSON object, or None for anything else (nested too deep counts as anything else)."""
    try:
        value = parse(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def dicts(value: object) -> list[dict[str, Any]]:
    """The objects of a list; nothing of what is no list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def inner(record: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The object under `name`, else an empty one."""
    value = record.get(name)
    return value if isinstance(value, dict) else {}


def number(record: Mapping[str, Any], name: str) -> float | None:
    """A finite number under `name`, else None; True and False are no numbers."""
    value = record.get(name)
    kind = value.__class__  # a run directory has millions of them: isinstance takes twice as long
    return float(value) if (kind is int or kind is float) and abs(value) < 1e300 else None  # type: ignore[arg-type]


def finite(value: object) -> float | None:
    """As `number`, of an item of a list."""
    return number({"": value}, "")


def integer(record: Mapping[str, Any], name: str) -> int | None:
    """A whole number of 64 bits under `name`, else None."""
    value = number(record, name)
    return int(value) if value is not None and -_MOST <= value < _MOST else None


def rank(value: object) -> int | None:
    """A plausible rank, as a number or as the key of a JSON object; else None."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 8:
        value = int(value)
    return value if type(value) is int and 0 <= value < MOST_RANKS else None


def ranks(value: object) -> tuple[int, ...]:
    """The plausible ranks of a list, each once."""
    return (
        tuple(dict.fromkeys(r for r in value if type(r) is int and 0 <= r < MOST_RANKS))
        if isinstance(value, list)
        else ()
    )


def world_size(record: Mapping[str, Any]) -> int | None:
    """A plausible world size under that name, else None."""
    size = integer(record, "world_size")
    return size if size is not None and 0 < size <= MOST_RANKS else None


def text(record: Mapping[str, Any], name: str) -> str:
    """A string under `name`, else the empty one."""
    value = record.get(name)
    return value if isinstance(value, str) else ""
