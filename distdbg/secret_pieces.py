"""Find pieces of known secret values in text: a value that is wrapped over several lines or cut anywhere. Pure.

Each piece of base64, hex or of a random value is found on its own, so neither the width of the lines nor what a logger
writes in front of them matters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from distdbg.masking import character_kinds, is_random, kind_changes
from distdbg.secret_forms import BASE64_ALPHABET, BASE64_CHARACTER, base64_forms

#: Characters of the alphabet of base64 in a row, of which a piece is searched in text and in random values.
_RUN = re.compile(rf"{BASE64_CHARACTER}{{8,}}")
#: Hexadecimal digits as xxd, hexdump -C and bytes.hex write them.
_HEX_RUN = re.compile(r"(?<![0-9A-Fa-f])[0-9A-Fa-f]{2}(?:[ :]{0,2}[0-9A-Fa-f]{2}){5,}")
#: Characters of a form whose substrings are kept: a variable may have 128 KiB.
_MAX_INDEXED = 1 << 14


@dataclass
class _Index:
    """All substrings of `size` characters of some forms, each with its form and offset.

    A piece is masked from `size` characters on at the begin or the end of a run, from `size` + 4 on anywhere else.
    """

    size: int
    substrings: dict[str, tuple[str, int]] = field(default_factory=dict)

    def add(self, form: str) -> None:
        for offset in range(min(len(form), _MAX_INDEXED) - self.size + 1):
            self.substrings.setdefault(form[offset : offset + self.size], (form, offset))

    def find(self, run: str) -> Iterator[tuple[int, int]]:
        """Begin and end of each piece in the run. The last substring and every fifth one are looked up."""
        last = len(run) - self.size
        end = 0
        for place in (*range(0, last, 5), last):
            if place + self.size <= end or (source := self.substrings.get(run[place : place + self.size])) is None:
                continue
            form, offset = source
            begin, end = place, place + self.size
            while begin > 0 and offset > 0 and run[begin - 1] == form[offset - 1]:
                begin, offset = begin - 1, offset - 1
            while end < len(run) and offset + end - begin < len(form) and run[end] == form[offset + end - begin]:
                end += 1
            if end - begin >= self.size + 4 or begin == 0 or end == len(run):
                yield begin, end


class PieceSearch:
    """The pieces of all known values."""

    def __init__(self, values: Iterable[str]) -> None:
        self._base64, self._hex, self._plain = _Index(8), _Index(12), _Index(8)
        for value in values:
            raw = value.encode("utf-8", "surrogateescape")
            self._hex.add(raw.hex())
            for form in base64_forms(raw):
                self._base64.add(form.translate(BASE64_ALPHABET))
            for run in _RUN.findall(value):
                if is_random(run):
                    self._plain.add(run.translate(BASE64_ALPHABET))

    def find(self, text: str) -> Iterator[tuple[int, int]]:
        """Begin and end of each piece in the text."""
        if not self._base64.substrings:
            return
        for found in _RUN.finditer(text):
            run = found[0].translate(BASE64_ALPHABET)
            for begin, end in self._base64.find(run):
                yield found.start() + begin, found.start() + end
            for begin, end in self._plain.find(run):
                if not _could_be_other_text(run[begin:end]):
                    yield found.start() + begin, found.start() + end
        for found in _HEX_RUN.finditer(text):
            digits = found[0].replace(" ", "").replace(":", "").lower()
            for begin, end in self._hex.find(digits):
                places = [n for n in range(*found.span()) if text[n] not in " :"]
                yield places[begin], places[end - 1] + 1


def _could_be_other_text(piece: str) -> bool:
    """Whether the piece of a random value could be a word, a name such as ProcessGroup, or a number."""
    has_both = {"digit"} < set(character_kinds(piece))
    return not has_both and 4 * kind_changes(piece) <= len(piece)
