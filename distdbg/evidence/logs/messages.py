"""The error messages that distdbg knows: what they mean, why they happen, what to do.

The list is configs/messages.yaml. Read only when something has failed: 30 ms with libyaml.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import yaml

from distdbg.assets import asset_dir

#: Longer texts are cut: what names the kind of an error stands at its beginning.
_MOST_TEXT = 8_192


@dataclass(frozen=True)
class KnownMessage:
    """One entry of the list; see its head for the fields."""

    id: str
    match: re.Pattern[str]
    finding: str
    symptom: str
    cause: str
    fix: str
    source: str
    example: str
    communication: bool = False


@lru_cache(maxsize=1)
def known_messages() -> tuple[KnownMessage, ...]:
    """The list that ships with distdbg, in its order."""
    return parse((asset_dir("configs") / "messages.yaml").read_text(encoding="utf-8"))


def parse(text: str) -> tuple[KnownMessage, ...]:
    """Raises ValueError with the entry's id for a field that is missing or not known, or a regex that is none."""
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    entries = yaml.load(text, Loader=loader)["messages"]
    return tuple(_entry(fields) for fields in entries)


def _entry(fields: dict[str, Any]) -> KnownMessage:
    try:
        return KnownMessage(**{**fields, "match": re.compile(fields["match"])})
    except (TypeError, KeyError, re.error) as error:
        raise ValueError(f"message {fields.get('id')!r}: {error}") from None


def recognise(text: str, among: Iterable[KnownMessage] | None = None) -> KnownMessage | None:
    """The first entry that fits `text`, an exception as "Type: message"; None for one that is not known."""
    cut = text[:_MOST_TEXT]
    return next((known for known in among or known_messages() if known.match.search(cut)), None)
