"""Find the values of a job's secrets in text, from hashes that reveal them to nobody.

The launcher knows the values of the secret environment variables and arguments; a report that is rebuilt elsewhere does
not. job.json keeps a salted scrypt digest of each, its length, and one byte of a fast digest: a word of the report that
has the length and the byte is hashed and compared. Trying words against such a digest takes milliseconds each, so that
it does not give a password away. Values below MIN_LENGTH characters are not kept: they would be found everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from distdbg.masking import MASK, mask_text

#: characters; shorter values are words that mean other things, too
MIN_LENGTH = 8
_MOST_LENGTH = 1024
MOST_VALUES = 64
#: scrypt's work factor: about 5 ms and 4 MiB a try
_WORK = 1 << 12
#: words of one report that are hashed at most: 5 s
_MOST_TRIES = 1000
#: a word of the characters of tokens, passwords and addresses
_WORD = re.compile(r"[^\s\"'`<>()\[\]{},;]+")


def entry(value: str, salt: bytes) -> dict[str, Any] | None:
    """What job.json keeps of one value; None for one that could not be found in text again."""
    if not MIN_LENGTH <= len(value) <= _MOST_LENGTH or not _WORD.fullmatch(value):
        return None
    return {"length": len(value), "hint": _hint(value, salt), "salt": salt.hex(), "digest": _digest(value, salt).hex()}


class HiddenValues:
    """What a job's record says of its secrets; `mask` takes them out of a text."""

    def __init__(self, job: Mapping[str, Any]) -> None:
        self._known: dict[int, list[tuple[int, bytes, bytes]]] = {}
        self._tries = 0
        entries = job.get("hidden_values")
        for entry in entries[:MOST_VALUES] if isinstance(entries, list) else ():
            match entry:
                case {"length": int(length), "hint": int(hint), "salt": str(salt), "digest": str(digest)}:
                    try:
                        known = hint, bytes.fromhex(salt), bytes.fromhex(digest)
                    except ValueError:
                        continue
                    self._known.setdefault(length, []).append(known)

    @property
    def exhausted(self) -> bool:
        """There were more words to try than it tries: a secret may be left."""
        return self._tries >= _MOST_TRIES

    def mask(self, text: str) -> str:
        """The text with the job's own secrets masked, and everything that looks like a secret."""
        for value in sorted(self._found(text), key=len, reverse=True):
            text = text.replace(value, MASK)
        return mask_text(text)

    def _found(self, text: str) -> set[str]:
        if not self._known:
            return set()
        words = {part for word in set(_WORD.findall(text)) for part in _parts(word, self._known)}
        return {word for word in words if self._is_hidden(word)}

    def _is_hidden(self, word: str) -> bool:
        for hint, salt, digest in self._known[len(word)]:
            if _hint(word, salt) == hint and self._tries < _MOST_TRIES:
                self._tries += 1
                if _digest(word, salt) == digest:
                    return True
        return False


def _parts(word: str, lengths: Iterable[int]) -> Iterable[str]:
    """Stretches of a word of these lengths that begin and end where a value may: at its ends and beside punctuation."""
    for length in lengths:
        for at in range(len(word) - length + 1):
            end = at + length
            begins = at == 0 or not word[at - 1].isalnum()
            if begins and (end == len(word) or not word[end].isalnum()):
                yield word[at:end]


def _hint(value: str, salt: bytes) -> int:
    from hashlib import blake2b  # OpenSSL takes 3.5 MiB, and few reports have such values

    return blake2b(value.encode("utf-8", "surrogateescape"), key=salt, digest_size=1).digest()[0]


@lru_cache(maxsize=4096)
def _digest(value: str, salt: bytes) -> bytes:
    from hashlib import scrypt

    return scrypt(value.encode("utf-8", "surrogateescape"), salt=salt, n=_WORK, r=8, p=1, dklen=16)
