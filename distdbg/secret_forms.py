"""Encode a secret value in the forms in which programs print it, and split text into words. Pure.

A value is recognised in two ways: literally, in every form of `printed_forms`, and by its words, whatever stands
between them: a terminal that wraps lines and a logger that draws a box change the spaces of a passphrase.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from functools import lru_cache

from distdbg.plain_text import clean, one_line

#: Characters of the shortest part of a value, and of its shortest encoded form, that are searched on their own.
MIN_PART_LENGTH, _MIN_ENCODED_LENGTH = 8, 5
#: Characters between two words of one value: an escape sequence, a line end, and the frame of a traceback's box.
MAX_GAP = 40
#: An escape sequence of JSON, Python, URLs or HTML is no part of the word behind it.
GAP = r"(?:%[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}|\\x[0-9A-Fa-f]{2}|\\[A-Za-z]|&#?\w{1,8};|[^A-Za-z0-9])"
_WORD_OR_GAP = re.compile(rf"(?P<gap>{GAP}+)|(?P<word>[A-Za-z0-9]+)")


def split_words(text: str) -> list[tuple[int, int]]:
    """Begin and end of each word of ASCII letters and digits."""
    return [found.span() for found in _WORD_OR_GAP.finditer(text) if found["word"]]


@lru_cache(maxsize=1024)
def secret_parts(value: str) -> frozenset[str]:
    """The value, its lines, the texts in its JSON, and user and password of an address."""
    parts = {value, value.strip()}
    parts |= {line.strip() for line in value.splitlines() if len(line.strip()) >= MIN_PART_LENGTH}
    with contextlib.suppress(ValueError, RecursionError):
        parts.update(_json_texts(json.loads(value)))
    return frozenset(filter(None, parts))


def _json_texts(value: object) -> Iterator[str]:
    match value:
        case str():
            yield value
        case list():
            for item in value:
                yield from _json_texts(item)
        case dict():
            for item in value.values():
                yield from _json_texts(item)


def printed_forms(value: str) -> frozenset[str]:
    """The value as repr, JSON, URLs, HTML, a shell, base64 and hex write it, and as reports clean it."""
    raw = value.encode("utf-8", "surrogateescape")
    encoded = {form for form in (*_base64_forms(raw), raw.hex(), raw.hex().upper()) if len(form) >= _MIN_ENCODED_LENGTH}
    return escaped_forms(value) | encoded


def escaped_forms(value: str) -> frozenset[str]:
    """The forms in which the letters and digits of the value stay as they are."""
    import html
    import shlex
    from urllib.parse import quote, quote_plus

    raw = value.encode("utf-8", "surrogateescape")
    forms = {value, raw.decode("utf-8", "replace"), clean(value), one_line(value)}
    for _ in range(2):  # a KeyError shows the repr of its message, a log in JSON the repr of a dict
        forms |= {form for text in forms for form in _escaped(text)}
    forms |= {repr(raw)[2:-1], shlex.quote(value)[1:-1] if shlex.quote(value) != value else value}
    for safe in ("", "/", "/:@!$&'()*+,;="):
        forms |= {quote(raw, safe), quote_plus(raw, safe)}
    forms |= {re.sub("%[0-9A-F]{2}", lambda escape: escape[0].lower(), form) for form in forms if "%" in form}
    forms |= {html.escape(value), html.escape(value, quote=False), html.escape(value).replace("&#x27;", "&#39;")}
    return frozenset(filter(None, forms))


def _escaped(text: str) -> Iterator[str]:
    yield repr(text)[1:-1]
    yield repr(text + "'\"")[1:-4]  # within a text that has both kinds of quotes
    yield json.dumps(text)[1:-1]
    yield json.dumps(text, ensure_ascii=False)[1:-1]


def _base64_forms(raw: bytes) -> Iterator[str]:
    """The characters that depend on the value alone, for each of its three alignments in the encoded text."""
    from base64 import b64encode

    for shift in range(3):
        text = b64encode(bytes(shift) + raw).decode()
        known = text[-(-8 * shift // 6) : (8 * (shift + len(raw))) // 6]
        yield known
        yield known.replace("+", "-").replace("/", "_")
