"""Recognise the values of secrets in text by digests that reveal them to nobody. Pure.

The record has of each value the lengths of its words, a salted scrypt digest of them, and some bits of a checksum.
Words of a text that have the lengths and the checksum are hashed and compared, which takes milliseconds each. A value
with random characters has a checksum of 24 bits and is found inside longer words, too. Any other has 8 bits: more of
them would spare whoever tries passwords most of the hashing. It is found as whole words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import log2
from typing import Any
from zlib import crc32

from distdbg.masking import character_kinds, is_random
from distdbg.secret_forms import Word, encoded_texts, escaped_forms, secret_parts, split_words

#: Bits of a value that cannot be tried: 8 letters, or 12 digits alone.
_MIN_BITS = 37
_MAX_CHARACTERS = 4096
#: Bytes of the salt.
_MAX_SALT = 64
_MAX_DIGESTS_PER_VALUE = 24
#: Bits of the checksum of a value, and of one with random characters.
_CHECKSUM_BITS, _CHECKSUM_BITS_IF_RANDOM = 8, 24
#: scrypt's work factor: about 5 ms and 4 MiB a try
_WORK = 1 << 12
#: Candidates that are hashed in one file, about 5 s. Any further one is taken for a secret.
_MAX_TRIES = 1000

_Lengths = tuple[int, ...]
_Span = tuple[int, int]


def digests_of(value: str, salt: bytes) -> list[dict[str, Any]]:
    """What a record keeps of the value: a digest for each way to write its words, or none if they could be tried."""
    if not _withstands_trying(_texts(value)):
        return []
    forms = {form for part in secret_parts(value) for form in escaped_forms(part)}
    ways = sorted({_texts(form) for form in forms}, key=lambda words: (len(words), words))
    return [_record(words, salt) for words in ways if _withstands_trying(words)][:_MAX_DIGESTS_PER_VALUE]


def _record(words: tuple[str, ...], salt: bytes) -> dict[str, Any]:
    joined = "\0".join(words)
    bits = _CHECKSUM_BITS_IF_RANDOM if is_random(joined) else _CHECKSUM_BITS
    return {"lengths": [len(word) for word in words], "bits": bits, "checksum": _checksum(joined.encode(), salt, bits),
            "salt": salt.hex(), "digest": _digest(joined, salt).hex()}  # fmt: skip


def _texts(text: str) -> tuple[str, ...]:
    return tuple(word for _, _, word in split_words(text))


def _withstands_trying(words: Sequence[str]) -> bool:
    kinds = character_kinds("".join(words))
    alphabet = sum(10 if kind == "digit" else 26 for kind in set(kinds))
    return len(kinds) <= _MAX_CHARACTERS and bool(kinds) and len(kinds) * log2(alphabet) >= _MIN_BITS


@dataclass(frozen=True)
class _Known:
    """A digest of one value."""

    bits: int
    checksum: int
    salt: bytes
    digest: bytes

    @property
    def is_random(self) -> bool:
        return self.bits >= _CHECKSUM_BITS_IF_RANDOM


class DigestSearch:
    """All digests of a job."""

    def __init__(self) -> None:
        self._digests: dict[_Lengths, list[_Known]] = {}
        self._tries = 0
        self._in_words: dict[str, tuple[_Span, ...]] = {}
        self._in_encoded: dict[str, bool] = {}

    def read(self, entries: object) -> bool:
        """Take the digests of one value from a record; whether there are any."""
        read = 0
        for entry in entries[:_MAX_DIGESTS_PER_VALUE] if isinstance(entries, list) else ():
            match entry:
                case {
                    "lengths": [*lengths],
                    "bits": int(bits),
                    "checksum": int(checksum),
                    "salt": str(salt),
                    "digest": str(digest),
                } if lengths and all(map(_is_length, lengths)) and 8 <= bits <= 32:
                    try:
                        known = _Known(bits, checksum, bytes.fromhex(salt)[:_MAX_SALT], bytes.fromhex(digest))
                    except ValueError:
                        continue
                    self._digests.setdefault(tuple(lengths), []).append(known)
                    read += 1
        return bool(read)

    def restart(self) -> None:
        """Allow as many tries for the next file as for the first."""
        self._tries = 0

    def find(self, text: str) -> list[_Span]:
        """Begin and end of each value in the text, also in what is encoded there."""
        if not self._digests:
            return []
        return [*self._find_plain(text), *self._find_encoded(text)]

    def _find_encoded(self, text: str) -> Iterator[_Span]:
        for begin, end, decoded in encoded_texts(text):
            if decoded not in self._in_encoded:
                self._in_encoded[decoded] = any(self._find_plain(decoded))
            if self._in_encoded[decoded]:
                yield begin, end

    def _find_plain(self, text: str) -> Iterator[_Span]:
        words = split_words(text)
        distinct = {word for _, _, word in words}
        for word in distinct.difference(self._in_words):
            self._in_words[word] = tuple(self._find_in_word(word))
        if any(self._in_words[word] for word in distinct):
            for begin, end, word in words:
                for first, last in self._in_words[word]:
                    yield (begin + first, begin + last) if len(word) == end - begin else (begin, end)
        several = [lengths for lengths in self._digests if len(lengths) > 1]
        sizes = bytes(min(len(word), 255) for _, _, word in words) if several else b""
        for lengths in several:
            yield from self._find_neighbours(words, sizes, lengths)

    def _find_in_word(self, word: str) -> Iterator[_Span]:
        for lengths, known in self._digests.items():
            length = lengths[0]
            if len(lengths) > 1 or length > len(word):
                continue
            if length == len(word):
                if self._is_hidden(word, known):
                    yield 0, length
            elif random := [digest for digest in known if digest.is_random]:
                for n in _places_with_checksum(word, length, random):
                    if self._is_hidden(word[n : n + length], random):
                        yield n, n + length

    def _find_neighbours(self, words: Sequence[Word], sizes: bytes, lengths: _Lengths) -> Iterator[_Span]:
        for n in _neighbours_of_lengths(words, sizes, lengths):
            (begin, first_end, first), *inner, (last_begin, end, last) = words[n : n + len(lengths)]
            texts = [first[-lengths[0] :], *(text for _, _, text in inner), last[: lengths[-1]]]
            if self._is_hidden("\0".join(texts), self._digests[lengths]):
                yield (first_end - lengths[0] if len(first) == first_end - begin else begin,
                       last_begin + lengths[-1] if len(last) == end - last_begin else end)  # fmt: skip

    def _is_hidden(self, words: str, known: Iterable[_Known]) -> bool:
        data = words.encode()
        for digest in known:
            if _checksum(data, digest.salt, digest.bits) == digest.checksum:
                self._tries += 1
                if self._tries > _MAX_TRIES or _digest(words, digest.salt) == digest.digest:
                    return True
        return False


def _is_length(value: object) -> bool:
    return type(value) is int and 0 < value <= _MAX_CHARACTERS


def _places_with_checksum(word: str, length: int, known: Iterable[_Known]) -> list[int]:
    """Where a part of the word has the checksum of a value."""
    checksums: dict[tuple[bytes, int], set[int]] = {}
    for digest in known:
        checksums.setdefault((digest.salt, digest.bits), set()).add(digest.checksum)
    data = word.encode() if word.isascii() else b""
    places = range(len(word) - length + 1)
    found: list[int] = []
    for (salt, bits), wanted in checksums.items():
        start, shift = crc32(salt), 32 - bits
        if data:  # the loop in which most of the time of a search is spent
            found += [n for n in places if crc32(data[n : n + length], start) >> shift in wanted]
        else:
            found += [n for n in places if crc32(word[n : n + length].encode(), start) >> shift in wanted]
    return found


def _neighbours_of_lengths(words: Sequence[Word], sizes: bytes, lengths: _Lengths) -> Iterator[int]:
    """The first of so many neighbouring words in which words of these lengths could stand: the first at the end of its
    word, the last at the begin of its word, the others as whole words."""
    first, *inner, last = (re.escape(bytes([min(length, 255)])) for length in lengths)
    pattern = re.compile(b"(?=[%b-\xff]%b[%b-\xff])" % (first, b"".join(inner), last), re.DOTALL)
    for found in pattern.finditer(sizes):
        group = words[found.start() : found.start() + len(lengths)]
        if all(len(word) == length for (_, _, word), length in zip(group[1:-1], lengths[1:-1], strict=True)):
            yield found.start()


def _checksum(data: bytes, salt: bytes, bits: int) -> int:
    return crc32(data, crc32(salt)) >> (32 - bits)


@lru_cache(maxsize=4096)
def _digest(words: str, salt: bytes) -> bytes:
    from hashlib import scrypt  # OpenSSL takes 3.5 MiB, and few reports have such values

    return scrypt(words.encode(), salt=salt, n=_WORK, r=8, p=1, dklen=16)
