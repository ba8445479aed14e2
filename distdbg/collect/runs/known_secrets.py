"""Find the secret values that this process knows: those of its environment and command line, and of the job it starts.

A variable or an option is secret by its name (`masking.sounds_secret`). What its value is then decides whether the
value is searched in text: a path that exists, a number of few digits, a value of up to three characters and a word that
distdbg's own texts use ("true", "rank") are not, because masking them would hide other things. They are masked
wherever they stand beside their name.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache

from distdbg.findings import catalogue
from distdbg.hidden_values import SecretValue
from distdbg.masking import MASK, mask, mask_argv, sounds_secret

#: Characters of the shortest value, and digits of the shortest number, that are searched.
MIN_VALUE_LENGTH = 4
MIN_DIGITS = 6
_NUMBER = re.compile(r"[-+]?[\d.,:]*")

#: Secrets of the job that this process has started or looked at, beside its own.
_remembered: set[SecretValue] = set()


def remember_secrets(environment: Mapping[str, str], argv: Sequence[str] = ()) -> None:
    """Mask the secrets of these variables and arguments in every report that this process makes."""
    _remembered.update(secret_values(environment, argv))


def known_secrets() -> list[SecretValue]:
    """The secrets of this process and of the jobs that it knows."""
    return sorted({*secret_values(os.environ, sys.argv[1:]), *_remembered}, key=lambda secret: secret.name)


def secret_values(environment: Mapping[str, str], argv: Sequence[str]) -> Iterator[SecretValue]:
    """The values that `mask` and `mask_argv` hide, if they can be told from other text."""
    for name, value in environment.items():
        yield from _searchable(name, _hidden_by(value, mask(name, value)))
        if sounds_secret(name):
            yield from _searchable(name, _hidden_by(value, mask("", value)))
    before = ""
    for word, shown in zip(argv, mask_argv(argv), strict=True):
        name = word.partition("=")[0] if "=" in word and shown != MASK else before
        yield from _searchable(name, _hidden_by(word, shown))
        before = word


def _hidden_by(value: str, shown: str) -> Iterator[str]:
    """The parts of a value that asterisks stand for; of a user's name and password also the password alone."""
    if value == shown:
        return
    pattern = "(.+?)".join(re.escape(part) for part in shown.split(MASK))
    found = re.fullmatch(pattern, value, re.DOTALL)
    for hidden in found.groups() if found is not None else (value,):
        yield hidden
        if shown != MASK and (password := hidden.partition(":")[2]):
            yield password


def _searchable(name: str, values: Iterable[str]) -> Iterator[SecretValue]:
    for value in values:
        if is_distinctive(value) and not os.path.exists(value):  # noqa: PTH110 -- it raises for no value
            yield SecretValue(name, value)


def is_distinctive(value: str) -> bool:
    """Whether the value can be told from other text."""
    text = value.strip()
    if len(text) < MIN_VALUE_LENGTH or (_NUMBER.fullmatch(text) and sum(c.isdigit() for c in text) < MIN_DIGITS):
        return False
    return text.lower() not in _own_words()


@cache
def _own_words() -> frozenset[str]:
    """The words of the catalogue of findings, which every report uses."""
    texts = (
        text for doc in catalogue().values() for text in (doc.id, doc.title, doc.meaning, doc.how_seen, doc.remedy)
    )
    words = {word.lower() for text in texts for word in re.findall(r"[A-Za-z][\w-]*", text)}
    return frozenset(words | {"true", "false", "none", "null"})
