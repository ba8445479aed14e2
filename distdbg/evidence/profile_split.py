"""A trace in Chrome's format comes apart into its events, one at a time: no more than one piece of it is ever held.

Both forms are read: an object with `traceEvents` and other keys beside it, and a bare list of events. A trace that is
cut off gives what is whole of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

#: A single event that is longer than this is none.
_MOST_EVENT = 16 << 20
_BETWEEN = re.compile(r"[\s,]*")
#: What JSONDecoder.raw_decode calls: the same without a Python frame an event
_scan: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder(strict=False).scan_once  # type: ignore[attr-defined]


class TraceSplit:
    """Made of pieces of text. `beside` has the other keys: those before the events at once, the rest at the end.

    `cut` says in words why there may be more events than were read; empty once all were.
    """

    def __init__(self, pieces: Iterator[str]) -> None:
        self.beside: dict[str, Any] = {}
        self.cut = ""
        self._pieces = pieces
        self._text, self._at = "", 0
        self._in_array = self._begin()

    def events(self) -> Iterator[dict[str, Any]]:
        """Once only. What is no object is left out."""
        if not self._in_array:
            return
        while not self.cut:
            if self._peek() == "]":
                self._at += 1
                self._rest()
                return
            event = self._value()
            if isinstance(event, dict):
                yield event

    # -- the text --------------------------------------------------------------------------------------------

    def _begin(self) -> bool:
        """Up to the first event; False where there are none."""
        opening = self._peek()
        self._at += 1
        if opening == "[":
            return True
        if opening != "{":
            self.cut = "it is no trace: neither an object nor a list"
            return False
        return self._keys(until="traceEvents")

    def _keys(self, until: str = "") -> bool:
        """Keys and their values into `beside`; True where the key `until` was met, and its list opened."""
        while not self.cut and self._peek() != "}":
            key = self._value()
            self._take(":")
            if key == until and until:
                return self._take("[")
            value = self._value()
            if not self.cut:
                self.beside[str(key)] = value
        if until and not self.cut:
            self.cut = f"it has no {until}"
        return False

    def _rest(self) -> None:
        """What stands behind the events: losing it loses none of them."""
        self._keys()
        if self.cut:
            self.cut = "its end is missing"

    def _take(self, wanted: str) -> bool:
        if self._peek() == wanted:
            self._at += 1
            return True
        self.cut = self.cut or f"it is no JSON: {wanted!r} is missing"
        return False

    def _value(self) -> Any:  # noqa: ANN401
        """The value that stands here; None, and `cut`, where it is not whole."""
        self._peek()
        while True:
            try:
                value, end = _scan(self._text, self._at)
            except (ValueError, StopIteration, RecursionError):
                end = len(self._text)
                if end - self._at > _MOST_EVENT:
                    self.cut = "it is no JSON from some event on"
                    return None
            if end < len(self._text):  # else a number might go on
                self._at = end
                return value
            if not self._more():
                self.cut = "it was cut off"
                return None

    def _peek(self) -> str:
        """The next character that says something, which is now the first; empty at the end."""
        while True:
            found = _BETWEEN.match(self._text, self._at)
            self._at = found.end() if found else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                self.cut = self.cut or "it was cut off"
                return ""

    def _more(self) -> bool:
        piece = next(self._pieces, "")
        self._text, self._at = self._text[self._at :] + piece, 0
        return bool(piece)
