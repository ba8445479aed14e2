"""Parse values of the command line and of YAML: each function takes one as written, and returns what it means.

What cannot be meant raises ValueError, with a sentence.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from pydantic import ValidationInfo
from pydantic_core import PydanticCustomError

from distdbg.backend_names import AUTO, backend_names
from distdbg.model import unfold_ranks
from distdbg.plain_text import whole_number

#: More ranks than this on one machine is a slip of the keyboard.
MOST_RANKS_A_NODE = 4096
MOST_NODES = 100_000
#: Seconds without progress: ranks are looked at once a second, and a month is no timeout any more.
SHORTEST_TIMEOUT = 2
LONGEST_TIMEOUT = 30 * 86400
#: What can be watched in the ranks.
WATCH_LEVELS = ("numerics", "gradients", "shapes", "compile")
#: Each is a snapshot of each rank, or some MB of its profile.
MOST_STEPS = 100
#: Words for a number of ranks; the number is found where the ranks run.
SKIP_WORDS = ("all", "all-but-last")
RANK_WORDS = ("auto", "gpu", "cpu", "xpu")

RANKS_SCHEMA: dict[str, Any] = {
    "anyOf": [{"type": "integer", "minimum": 1, "maximum": MOST_RANKS_A_NODE}, {"enum": list(RANK_WORDS)}]
}

#: Other packages may bring backends of their own.
BACKENDS_SCHEMA: dict[str, Any] = {"anyOf": [{"enum": ["auto", "local", "slurm", "ssh"]}, {"type": "string"}]}

WATCH_SCHEMA: dict[str, Any] = {
    "anyOf": [{"type": "string"}, {"type": "array", "items": {"enum": list(WATCH_LEVELS)}, "uniqueItems": True}]
}


def timeout_schema(*words: str) -> dict[str, Any]:
    return {"anyOf": [{"type": "number", "minimum": SHORTEST_TIMEOUT, "maximum": LONGEST_TIMEOUT}, {"enum": [*words]}]}


def plain_text(value: object) -> object:
    """Plain values of YAML as the text of a word or a variable: true is true, and not Python's True."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, (int, float)) else value


def number_of_ranks(value: object) -> object:
    if isinstance(value, str):
        number = whole_number(value.removeprefix("-"))
        value = value if number is None else -number if value.startswith("-") else number
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise ValueError("a number is expected, or auto, gpu, cpu or xpu")  # noqa: TRY004 -- pydantic takes this one
    if isinstance(value, int) and not 1 <= value <= MOST_RANKS_A_NODE:
        raise ValueError(f"{value} ranks on a node cannot be; it is 1 to {MOST_RANKS_A_NODE}, auto, gpu or cpu")
    if isinstance(value, str) and value not in RANK_WORDS:
        raise ValueError(f"{value!r} is neither a number nor one of {', '.join(RANK_WORDS)}")
    return value


def number_of_layers(value: object) -> object:
    text = plain_text(value)
    if text is None or text in SKIP_WORDS or (isinstance(text, str) and (whole_number(text) or 0) > 0):
        return text
    raise ValueError(f"a number of layers is expected, or {' or '.join(SKIP_WORDS)}")


def few_steps(value: object) -> object:
    if value is None:
        return None
    first, _, last = str(value).partition(":")
    begin, end = whole_number(first), whole_number(last or first)
    if begin is None or end is None or not 0 < begin <= end < begin + MOST_STEPS:
        raise ValueError(f"FIRST:LAST is expected, from 1 on and at most {MOST_STEPS} steps, as in 10:12")
    return f"{begin}:{end}"


def watch_levels(value: object) -> object:
    """A word, words with commas between them, or a list of words; in the order of WATCH_LEVELS, each once."""
    words = value.split(",") if isinstance(value, str) else [] if value is None else value
    if not isinstance(words, (list, tuple)):
        raise ValueError(f"one or more of {', '.join(WATCH_LEVELS)} are expected")  # noqa: TRY004 -- pydantic's
    named = [str(word).strip() for word in words]
    bad = next((word for word in named if word not in WATCH_LEVELS), None)
    if bad is not None:
        raise ValueError(f"{bad!r} cannot be watched; it is one or more of {', '.join(WATCH_LEVELS)}")
    return [level for level in WATCH_LEVELS if level in named]


def seconds(value: object, info: ValidationInfo) -> object:
    """YAML reads `off` as false."""
    words = ("auto", "off") if info.field_name == "hang_timeout" else ("auto",)
    value = "off" if value is False else value
    if isinstance(value, str) and value in words:
        return value
    try:
        seconds = float(value) if isinstance(value, (str, int, float)) and value is not True else None
    except ValueError:
        seconds = None
    if seconds is None or seconds != seconds:  # noqa: PLR0124 -- not a number is unequal to itself
        raise ValueError(f"a number of seconds is expected, or {' or '.join(words)}")
    if not SHORTEST_TIMEOUT <= seconds <= LONGEST_TIMEOUT:
        raise ValueError(f"{seconds:g} s cannot be; it is {SHORTEST_TIMEOUT} to {LONGEST_TIMEOUT}, or {words[-1]}")
    return seconds


def shown_ranks(value: object) -> object:
    return _ranks_or(value, "all", "none")


def profiled_ranks(value: object) -> object:
    return _ranks_or(value, "all")


def _ranks_or(value: object, *words: str) -> str:
    if value not in words and not unfold_ranks(str(value)):
        raise ValueError(f"ranks are expected, as in 0-3,8, or {' or '.join(words)}")
    return str(value)


def plain_words(value: object) -> object:
    """YAML reads 1e-3 as a number or a word, as it likes; an argument is a word."""
    return [plain_text(v) for v in value] if isinstance(value, list) else value


def modes(value: object) -> object:
    """YAML reads `off` as false."""
    return {k: "off" if v is False else v for k, v in value.items()} if isinstance(value, dict) else value


def variables(value: object) -> object:
    if not isinstance(value, dict):
        return value
    bad = next((n for n in value if not str(n) or "=" in str(n)), None)
    if bad is not None:
        raise ValueError(f"{bad!r} cannot be the name of a variable")
    return {str(name): plain_text(text) for name, text in value.items()}


def passable(value: object) -> object:
    """What a process can be given: a NUL ends a word, and half of a surrogate pair has no bytes."""
    words = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else [value]
    for word in (str(w) for w in words if isinstance(w, (str, PurePath))):
        try:
            good = b"\0" not in word.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            good = False
        if not good:
            raise ValueError(f"{word!r} holds a character that no command line can carry")
    return value


def flags(value: object) -> object:
    """A switch that is true has an empty value, one that is false is not there."""
    if not isinstance(value, dict):
        return value
    pairs = ((str(name).lstrip("-").replace("_", "-"), text) for name, text in value.items())
    return {name: "" if text is True else plain_text(text) for name, text in pairs if text is not False}


def known_backend(value: object) -> object:
    """`auto`, or an installed backend; a mistake reads as that of a Literal does."""
    if value == AUTO or value in backend_names():
        return value
    *names, last = (repr(name) for name in (AUTO, *backend_names()))
    expected = {"expected": f"{', '.join(names)} or {last}"}
    raise PydanticCustomError("literal_error", "Input should be {expected}", expected)
