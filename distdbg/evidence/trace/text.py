"""Split the text of a chrome trace into its events while it arrives: only the current piece is in memory.

Takes the object form, `{"traceEvents": [...]}` with what precedes the array, and the bare array.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from distdbg.evidence import jsonl

_ARRAY = re.compile(r'"traceEvents"\s*:\s*\[')
_BETWEEN = re.compile(r"[\s,]*")
#: What may precede the events (device properties, process groups), and what one event may need.
_MOST_HEADER = 32 << 20
_MOST_EVENT = 16 << 20


class NoTrace(Exception):
    """Says in half a sentence why a text is no chrome trace."""


class TraceSplitter:
    """`feed` it text; `header` is the text before the events, `whole` is True once the array has ended."""

    def __init__(self) -> None:
        self.header: dict[str, Any] = {}
        self.events = 0
        #: events among them that are no JSON objects
        self.no_objects = 0
        self.whole = False
        #: half a sentence where the text stopped being JSON
        self.broken = ""
        self._text = ""
        self._began = False
        self._decode = json.JSONDecoder(strict=False).raw_decode

    def feed(self, text: str) -> Iterator[dict[str, Any]]:
        """The events that are whole by now. Raises NoTrace where what comes can be none."""
        if self.whole or self.broken:
            return
        self._text += text
        if not self._began and not self._begin():
            return
        yield from self._events()

    def close(self) -> None:
        """Finish at the end of the text. Raises NoTrace where it contains no event."""
        if self._began:
            return
        if not self._text.strip():
            raise NoTrace("it is empty")
        raise NoTrace("it is no chrome trace: it has no traceEvents")

    def _begin(self) -> bool:
        start = self._text.lstrip("\ufeff \t\r\n")
        if start and start[0] not in "{[":
            raise NoTrace("it is no chrome trace: it is not JSON")
        if start.startswith("["):
            self._text, self._began = start[1:], True
            return True
        found = _ARRAY.search(self._text)
        if found is None:
            if len(self._text) > _MOST_HEADER:
                raise NoTrace("it is no chrome trace: it has no traceEvents")
            return False
        self.header = _header(self._text[: found.start()])
        self._text, self._began = self._text[found.end() :], True
        return True

    def _events(self) -> Iterator[dict[str, Any]]:
        text, at = self._text, 0
        while True:
            at = _BETWEEN.match(text, at).end()  # type: ignore[union-attr]
            if at >= len(text):
                break
            if text[at] == "]":
                self.whole = True
                break
            try:
                value, at = self._decode(text, at)
            except (ValueError, RecursionError):
                if len(text) - at > _MOST_EVENT or text[at] != "{":
                    self.broken = f"what follows its first {self.events:,} events is no JSON"
                break
            self.events += 1
            if isinstance(value, dict):
                yield value
            else:
                self.no_objects += 1
        self._text = "" if self.whole or self.broken else text[at:]


def _header(text: str) -> dict[str, Any]:
    try:
        value = jsonl.parse(text.lstrip("\ufeff").rstrip().rstrip(",") + "}", strict=False)
    except ValueError:  # the header only adds names: the events tell the same without
        return {}
    return value if isinstance(value, dict) else {}
