"""Find the values of a job's secrets in text: the values themselves, or digests that reveal them to nobody.

The process that knows the values masks them in all their forms. A report that is rebuilt elsewhere does not know them:
job.json keeps digests of them (`secret_digests`). Of a value that could be tried, the record has its name alone.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from distdbg.masking import MASK, mask_text
from distdbg.secret_digests import DigestSearch, digests_of
from distdbg.secret_forms import GAP, MAX_GAP, MIN_PART_LENGTH, ascii_words, printed_forms, secret_parts
from distdbg.secret_pieces import PieceSearch

MAX_VALUES = 64
#: Characters of a text whose masked form is remembered.
_MAX_REMEMBERED = 4096
#: What follows the last character, and what precedes the first one, that a shortened text still has.
_AFTER_CUT = ("…", " …", "...", " ...", "\n")
_BEFORE_CUT = ("…", "… ", "...", "... ", "\n")

_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True)
class SecretValue:
    """A value and the variable or option that has it."""

    name: str
    value: str


def record_value(secret: SecretValue, salt: bytes) -> dict[str, Any]:
    """What job.json keeps of one value."""
    return {"name": secret.name, "digests": digests_of(secret.value, salt)}


class HiddenValues:
    """The secrets of a job: what its record keeps of them, and those whose values are known here."""

    def __init__(self, job: Mapping[str, Any] | None = None, known: Iterable[SecretValue] = ()) -> None:
        known = tuple(known)
        self._search = DigestSearch()
        self._masked: dict[str, str] = {}
        parts = {part for secret in known for part in secret_parts(secret.value)}
        self._forms = sorted({form for part in parts for form in printed_forms(part)}, key=len, reverse=True)
        self._pieces = PieceSearch(parts)
        #: a short value of letters alone is masked as a whole word: it is part of many others
        self._words = {part: re.compile(rf"(?<![^\W\d_]){re.escape(part)}(?![^\W\d_])") for part in parts
                       if len(part) < MIN_PART_LENGTH and part.isalpha()}  # fmt: skip
        self._wrapped = [_across_gaps(words) for part in sorted(parts) if len(words := ascii_words(part)) > 1
                         and sum(map(len, words)) >= MIN_PART_LENGTH]  # fmt: skip
        #: why some secrets of the job might be left in a text that was masked; empty if none are
        self.incomplete = "" if job is None else self._read(job, {secret.name for secret in known})

    def _read(self, job: Mapping[str, Any], known: set[str]) -> str:
        values = job.get("hidden_values")
        if not isinstance(values, list) or not all(isinstance(e, dict) and "name" in e for e in values):
            return "job.json does not say which secrets the job had"
        missing = [str(entry.get("name")) for entry in values if not self._search.read(entry.get("digests"))]
        missing = sorted({name for name in missing if name not in known})
        if missing:
            return f"no digest is kept of the value of {', '.join(missing)}, and it is not known here"
        return ""

    def restart_search(self) -> None:
        """Allow as many tries for the next file as for the first."""
        self._search.restart()

    def mask(self, text: str) -> str:
        """The text with the job's own secrets masked, and everything that looks like a secret."""
        masked = self._masked.get(text)
        if masked is None:
            masked = mask_text(self._without_digested(self._without_known(text)))
            if len(text) < _MAX_REMEMBERED:
                self._masked[text] = masked
        return masked

    def mask_all(self, value: _T) -> _T:
        """Mask every text in dataclasses, lists, tuples and dicts. What has no secret is returned as it is."""
        masked: _T = _Masker(self).masked(value)
        return masked

    def _without_known(self, text: str) -> str:
        for form in self._forms:
            if form in text:
                text = self._words[form].sub(MASK, text) if form in self._words else text.replace(form, MASK)
        for form in self._forms:
            if len(form) > MIN_PART_LENGTH:
                text = _without_cut_form(text, form)
        for pattern in self._wrapped:
            text = pattern.sub(MASK, text)
        return _mask_spans(text, self._pieces.find(text))

    def _without_digested(self, text: str) -> str:
        return _mask_spans(text, self._search.find(text))


class _Masker:
    """One walk through nested values. An object that occurs twice is masked once."""

    def __init__(self, hidden: HiddenValues) -> None:
        self._hidden = hidden
        self._done: dict[int, tuple[object, object]] = {}

    def masked(self, value: Any) -> Any:  # noqa: ANN401
        if isinstance(value, str):
            return value if type(value) is not str else self._hidden.mask(value)
        if not isinstance(value, (list, tuple, dict)) and not _is_record(value):
            return value
        if id(value) not in self._done:
            self._done[id(value)] = value, self._changed(value)
        return self._done[id(value)][1]

    def _changed(self, value: Any) -> Any:  # noqa: ANN401
        if isinstance(value, dict):
            pairs = {self.masked(key): self.masked(item) for key, item in value.items()}
            same = all(a is b for a, b in zip(value, pairs, strict=False)) and len(pairs) == len(value)
            return value if same and all(pairs[key] is item for key, item in value.items()) else pairs
        if isinstance(value, (list, tuple)):
            items = [self.masked(item) for item in value]
            if all(a is b for a, b in zip(value, items, strict=True)):
                return value
            return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
        fields = {f.name: self.masked(getattr(value, f.name)) for f in dataclasses.fields(value) if f.init}
        changed = {name: new for name, new in fields.items() if new is not getattr(value, name)}
        return dataclasses.replace(value, **changed) if changed else value


def _is_record(value: object) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


# -- values that are known ---------------------------------------------------------------------------------------------


def _without_cut_form(text: str, form: str) -> str:
    """Mask the begin of a value at the end of a text that was cut, and the end of a value at the begin of one."""
    spans = []
    for at in _places(text, form[:MIN_PART_LENGTH]):
        end = at + MIN_PART_LENGTH
        while end < len(text) and end - at < len(form) and text[end] == form[end - at]:
            end += 1
        if end == len(text) or text.startswith(_AFTER_CUT, end):
            spans.append((at, end))
    for at in _places(text, form[-MIN_PART_LENGTH:]):
        begin, end = at, at + MIN_PART_LENGTH
        while begin > 0 and end - begin < len(form) and text[begin - 1] == form[len(form) - 1 - (end - begin)]:
            begin -= 1
        if begin == 0 or text[:begin].endswith(_BEFORE_CUT):
            spans.append((begin, end))
    return _mask_spans(text, spans)


def _places(text: str, part: str) -> Iterator[int]:
    at = text.find(part)
    while at >= 0:
        yield at
        at = text.find(part, at + 1)


def _across_gaps(words: Sequence[str]) -> re.Pattern[str]:
    return re.compile(f"{GAP}{{1,{MAX_GAP}}}?".join(map(re.escape, words)))


def _mask_spans(text: str, spans: Iterable[tuple[int, int]]) -> str:
    shown, done = [], 0
    for begin, end in sorted(spans):
        if end > done:
            shown += [text[done:begin], MASK] if begin >= done else []
            done = end
    return "".join([*shown, text[done:]]) if shown else text
