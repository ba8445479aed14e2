"""Encode a secret value in the forms in which programs print it, and read words out of such forms. Pure.

A value is recognised in two ways: literally, in every form of `printed_forms`, and by its words, whatever stands
between them: a terminal that wraps lines and a logger that draws a box change the spaces of a passphrase.
"""

from __future__ import annotations

import binascii
import contextlib
import html
import json
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import groupby

from distdbg.plain_text import clean, one_line

#: Characters of the shortest part of a value, and of its shortest encoded form, that are searched on their own.
MIN_PART_LENGTH, _MIN_ENCODED_LENGTH = 8, 5
#: From this length on, pieces of an encoded form are searched.
_MAX_ENCODED_LENGTH = 16
#: Characters between two words of one value: an escape sequence, a line end, and the frame of a traceback's box.
MAX_GAP = 40
#: Of JSON, Python, URLs, HTML and terminals.
_ESCAPE_SEQUENCE = (
    r"%[0-9A-Fa-f]{2}|\\U[0-9A-Fa-f]{8}|\\u[0-9A-Fa-f]{4}|\\x[0-9A-Fa-f]{2}|\\[A-Za-z]|&#?\w{1,8};"
    r"|\x1b\[[0-9;]*[A-Za-z]"
)
#: An escape sequence is no part of the word behind it.
GAP = rf"(?:{_ESCAPE_SEQUENCE}|[^A-Za-z0-9])"
_ASCII_WORD_OR_GAP = re.compile(rf"(?:{GAP})+|(?P<word>[A-Za-z0-9]+)")
_ESCAPES = re.compile(rf"(?:{_ESCAPE_SEQUENCE})+")
_ESCAPE = re.compile(
    r"(?:%|\\x)(?P<byte>[0-9A-Fa-f]{2})|\\[uU](?P<code>[0-9A-Fa-f]{4,8})|(?P<entity>&[^;]+;)|\\.|\x1b.*?[A-Za-z]"
)
_WORD = re.compile(r"[^\W_]+")
#: A letter that no text has. It fills up what an escape sequence is longer than its letters.
_FILLER = "\ua66e"
#: Of both alphabets of base64, which are compared as one.
BASE64_CHARACTER = "[A-Za-z0-9+/_-]"
BASE64_ALPHABET = str.maketrans("-_", "+/")
#: 7 characters, of which the shortest value with a digest has no fewer, as base64 and as hex.
_BASE64 = re.compile(rf"{BASE64_CHARACTER}{{10,}}")
_HEX = re.compile(r"[0-9A-Fa-f]{14,}")
_MIN_DECODED = 7

#: Begin and end in the text, and the word.
Word = tuple[int, int, str]


def ascii_words(text: str) -> list[str]:
    """The words of ASCII letters and digits: they are the same in all escaped forms."""
    return [found["word"] for found in _ASCII_WORD_OR_GAP.finditer(text) if found["word"]]


def split_words(text: str) -> list[Word]:
    """The words of letters and digits of any script, with escape sequences for letters decoded."""
    plain = _ESCAPES.sub(_letters_of, text) if "\\" in text or "%" in text or "&" in text or "\x1b" in text else text
    words = [(*found.span(), found[0]) for found in _WORD.finditer(plain)]
    if _FILLER in plain:
        return [(begin, end, word) for begin, end, raw in words if (word := raw.replace(_FILLER, ""))]
    return words


def _letters_of(escapes: re.Match[str]) -> str:
    """The letters and digits that the escape sequences stand for, spaces for all others, in the same length."""
    units: list[bytes | str] = []
    for escape in _ESCAPE.finditer(escapes[0]):
        if byte := escape["byte"]:
            units.append(bytes.fromhex(byte))
        elif code := escape["code"]:
            units.append(chr(int(code, 16)) if int(code, 16) < 0x110000 else " ")
        else:
            units.append(html.unescape(escape["entity"]) if escape["entity"] else " ")
    text = "".join(_joined(units))
    shown = "".join(c if c.isalnum() else " " for c in text)[: len(escapes[0])]
    return shown.ljust(len(escapes[0]), _FILLER if shown[-1:].isalnum() else " ")


def _joined(units: Iterable[bytes | str]) -> Iterator[str]:
    """Bytes in a row are UTF-8, or else the characters of these numbers; halves of a surrogate pair are joined."""
    for is_bytes, run in groupby(units, key=lambda unit: isinstance(unit, bytes)):
        if is_bytes:
            raw = b"".join(run)  # type: ignore[arg-type]
            try:
                yield raw.decode()
            except UnicodeDecodeError:
                yield raw.decode("latin-1")
        else:
            yield "".join(run).encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # type: ignore[arg-type]


def encoded_texts(text: str) -> Iterator[Word]:
    """Begin, end and the decoded text of what could be text in base64 or hex."""
    for found in _BASE64.finditer(text):
        run = found[0]
        if run.isdecimal():
            continue
        run = run.translate(BASE64_ALPHABET)
        for shift in range(4):
            part = run[shift : len(run) - ((len(run) - shift) % 4 == 1)]
            yield from _readable(found, binascii.a2b_base64(part + "=" * (-len(part) % 4)))
    for found in _HEX.finditer(text):
        for shift in range(2):
            run = found[0][shift:]
            yield from _readable(found, bytes.fromhex(run[: len(run) & ~1]))


def _readable(found: re.Match[str], data: bytes) -> Iterator[Word]:
    decoded = data.decode("utf-8", "replace")
    if 4 * decoded.count("\ufffd") <= len(decoded) and sum(map(str.isalnum, decoded)) >= _MIN_DECODED:
        yield *found.span(), decoded


@lru_cache(maxsize=1024)
def secret_parts(value: str) -> frozenset[str]:
    """The value, and of its lines and the texts in its JSON those that are searched on their own."""
    parts = {value.strip(), *map(str.strip, value.splitlines())}
    with contextlib.suppress(ValueError, RecursionError):
        parts.update(_json_texts(json.loads(value)))
    return frozenset({value, *(part for part in parts if len(part) >= MIN_PART_LENGTH)})


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
    """The value as repr, JSON, URLs, HTML, a shell, base64 and hex write it, and as reports clean it. Longer base64 and
    hex are left out: they are searched in pieces (`secret_pieces`)."""
    raw = value.encode("utf-8", "surrogateescape")
    forms = {form.replace("+", "-").replace("/", "_") for form in base64_forms(raw)}
    forms.update(base64_forms(raw), (raw.hex(), raw.hex().upper()))
    return escaped_forms(value) | {form for form in forms if _MIN_ENCODED_LENGTH <= len(form) < _MAX_ENCODED_LENGTH}


def escaped_forms(value: str) -> frozenset[str]:
    """The forms in which the letters and digits of the value stay as they are."""
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
    for write in (repr, ascii):
        yield write(text)[1:-1]
        yield write(text + "'\"")[1:-4]  # within a text that has both kinds of quotes
    yield json.dumps(text)[1:-1]
    yield json.dumps(text, ensure_ascii=False)[1:-1]


def base64_forms(raw: bytes) -> Iterator[str]:
    """The characters that depend on the value alone, for each of its three alignments in the encoded text."""
    from base64 import b64encode

    for shift in range(3):
        text = b64encode(bytes(shift) + raw).decode()
        yield text[-(-8 * shift // 6) : (8 * (shift + len(raw))) // 6]
