"""Find the values of a job's secrets in text: the values themselves, or digests that reveal them to nobody.

The process that knows the values masks them in all their forms. A report that is rebuilt elsewhere does not know them:
job.json keeps of each value the lengths of its words, and a salted scrypt digest of these. Words of the report that
have the lengths and one byte of a fast digest are hashed and compared. Trying words against such a digest takes
milliseconds each, so that it does not give a password away. Of a value with fewer than MIN_LETTERS letters and digits
no digest is kept, because all such values could be tried: the record has its name alone.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from distdbg.masking import MASK, mask_text
from distdbg.secret_forms import GAP, MAX_GAP, MIN_PART_LENGTH, escaped_forms, printed_forms, secret_parts, split_words

#: Letters and digits of the shortest value of which a digest is kept.
MIN_LETTERS = 8
_MAX_LETTERS = 4096
#: Bytes of the key of a fast digest.
_MAX_SALT = 64
MAX_VALUES = 64
MAX_DIGESTS_PER_VALUE = 24
#: Words up to this length are searched at the begin and the end of a longer word alone: there are too many others.
_MAX_WORD_AT_ENDS = 12
#: scrypt's work factor: about 5 ms and 4 MiB a try
_WORK = 1 << 12
#: Candidates that are hashed in one report, about 5 s. Any further one is taken for a secret.
_MAX_TRIES = 1000
#: Characters of a text whose masked form is remembered.
_MAX_REMEMBERED = 4096
#: What follows the last character, and what precedes the first one, that a shortened text still has.
_AFTER_CUT = ("…", " …", "...", " ...", "\n")
_BEFORE_CUT = ("…", "… ", "...", "... ", "\n")

_T = TypeVar("_T")
_Lengths = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class SecretValue:
    """A value and the variable or option that has it."""

    name: str
    value: str


def record_value(secret: SecretValue, salt: bytes) -> dict[str, Any]:
    """What job.json keeps of one value: digests of its words, or none if it is too short for them."""
    forms = printed_forms(secret.value)
    for part in secret_parts(secret.value):
        forms |= escaped_forms(part) if len(part) >= MIN_PART_LENGTH else frozenset()
    words = {tuple(_words(form)) for form in forms}
    if not _is_long_enough(_words(secret.value)):
        return {"name": secret.name, "digests": []}
    kept = sorted((w for w in words if _is_long_enough(w)), key=lambda w: (len(w), w))[:MAX_DIGESTS_PER_VALUE]
    digests = [
        {"lengths": [len(word) for word in w], "hint": _hint("\0".join(w), salt), "salt": salt.hex(),
         "digest": _digest("\0".join(w), salt).hex()}
        for w in kept
    ]  # fmt: skip
    return {"name": secret.name, "digests": digests}


def _words(text: str) -> list[str]:
    return [text[begin:end] for begin, end in split_words(text)]


def _is_long_enough(words: Sequence[str]) -> bool:
    return MIN_LETTERS <= sum(map(len, words)) <= _MAX_LETTERS


class HiddenValues:
    """The secrets of a job: what its record keeps of them, and those whose values are known here."""

    def __init__(self, job: Mapping[str, Any] | None = None, known: Iterable[SecretValue] = ()) -> None:
        known = tuple(known)
        self._digests: dict[_Lengths, list[tuple[int, bytes, bytes]]] = {}
        self._tries = 0
        self._masked: dict[str, str] = {}
        self._places_in_words: dict[tuple[str, int], tuple[int, ...]] = {}
        parts = {part for secret in known for part in secret_parts(secret.value)
                 if part == secret.value or len(part) >= MIN_PART_LENGTH}  # fmt: skip
        self._forms = sorted({form for part in parts for form in printed_forms(part)}, key=len, reverse=True)
        #: a short value of letters alone is masked as a whole word: it is part of many others
        self._words = {part: re.compile(rf"(?<![^\W\d_]){re.escape(part)}(?![^\W\d_])") for part in parts
                       if len(part) < MIN_PART_LENGTH and part.isalpha()}  # fmt: skip
        self._wrapped = [_across_gaps(words) for part in sorted(parts) if len(words := _words(part)) > 1
                         and _is_long_enough(words)]  # fmt: skip
        #: why some secrets of the job might be left in a text that was masked; empty if none are
        self.incomplete = "" if job is None else self._read(job, {secret.name for secret in known})

    def _read(self, job: Mapping[str, Any], known: set[str]) -> str:
        values = job.get("hidden_values")
        if not isinstance(values, list) or not all(isinstance(e, dict) and "name" in e for e in values):
            return "job.json does not say which secrets the job had"
        missing = [str(entry.get("name")) for entry in values if not self._read_digests(entry.get("digests"))]
        missing = sorted({name for name in missing if name not in known})
        if missing:
            return f"no digest is kept of the value of {', '.join(missing)}, and it is not known here"
        return ""

    def _read_digests(self, entries: object) -> bool:
        read = 0
        for entry in entries[:MAX_DIGESTS_PER_VALUE] if isinstance(entries, list) else ():
            match entry:
                case {"lengths": [*lengths], "hint": int(hint), "salt": str(salt), "digest": str(digest)} if (
                    lengths and all(type(length) is int and 0 < length <= _MAX_LETTERS for length in lengths)
                ):
                    try:
                        known = hint, bytes.fromhex(salt)[:_MAX_SALT], bytes.fromhex(digest)
                    except ValueError:
                        continue
                    self._digests.setdefault(tuple(lengths), []).append(known)
                    read += 1
        return bool(read)

    def restart_search(self) -> None:
        """Allow as many tries for the next file as for the first."""
        self._tries = 0

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
        return text

    def _without_digested(self, text: str) -> str:
        if not self._digests:
            return text
        spans = split_words(text)
        found = [span for lengths in self._digests for span in self._occurrences(text, spans, lengths)]
        return _mask_spans(text, found)

    def _occurrences(self, text: str, spans: list[tuple[int, int]], lengths: _Lengths) -> Iterator[tuple[int, int]]:
        if len(lengths) == 1:
            for begin, end in spans:
                for shift in self._hidden_in_word(text[begin:end], lengths[0]):
                    yield begin + shift, begin + shift + lengths[0]
            return
        for first in _neighbours_of_lengths(spans, lengths):
            group = spans[first : first + len(lengths)]
            begin, end = group[0][1] - lengths[0], group[-1][0] + lengths[-1]
            words = "\0".join(
                [text[begin : group[0][1]], *(text[a:b] for a, b in group[1:-1]), text[group[-1][0] : end]]
            )
            if self._is_hidden(words, lengths):
                yield begin, end

    def _hidden_in_word(self, word: str, length: int) -> tuple[int, ...]:
        """Where a value of one word stands in a word: anywhere, a short one at the begin or the end."""
        last = len(word) - length
        if last < 0:
            return ()
        if (word, length) not in self._places_in_words:
            shifts = sorted({0, last}) if length <= _MAX_WORD_AT_ENDS else range(last + 1)
            hidden = tuple(n for n in shifts if self._is_hidden(word[n : n + length], (length,)))
            self._places_in_words[word, length] = hidden
        return self._places_in_words[word, length]

    def _is_hidden(self, words: str, lengths: _Lengths) -> bool:
        for hint, salt, digest in self._digests[lengths]:
            if _hint(words, salt) == hint:
                self._tries += 1
                if self._tries > _MAX_TRIES or _digest(words, salt) == digest:
                    return True
        return False


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
    for begin, end in _merged(spans):
        text = text[:begin] + MASK + text[end:]
    return text


def _merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Without overlaps, the last first."""
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if merged and begin < merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((begin, end))
    return merged[::-1]


# -- values of which only digests are known ----------------------------------------------------------------------------


def _neighbours_of_lengths(spans: Sequence[tuple[int, int]], lengths: _Lengths) -> Iterator[int]:
    """The first of so many neighbouring words in which words of these lengths could stand: the first at the end of its
    word, the last at the begin of its word, the others as whole words."""
    text = bytes(min(end - begin, 255) for begin, end in spans)
    first, *inner, last = (re.escape(bytes([min(length, 255)])) for length in lengths)
    pattern = re.compile(b"(?=[%b-\xff]%b[%b-\xff])" % (first, b"".join(inner), last), re.DOTALL)
    for found in pattern.finditer(text):
        group = spans[found.start() : found.start() + len(lengths)]
        if all(b - a == length for (a, b), length in zip(group[1:-1], lengths[1:-1], strict=True)):
            yield found.start()


def _hint(words: str, salt: bytes) -> int:
    from hashlib import blake2b  # OpenSSL takes 3.5 MiB, and few reports have such values

    return blake2b(words.encode(), key=salt, digest_size=1).digest()[0]


@lru_cache(maxsize=4096)
def _digest(words: str, salt: bytes) -> bytes:
    from hashlib import scrypt

    return scrypt(words.encode(), salt=salt, n=_WORK, r=8, p=1, dklen=16)
