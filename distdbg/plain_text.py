"""Make foreign text plain: control sequences of terminals and pages are dropped or made visible. Read numbers. Pure.

Others are scripts and what they print, file and host names, values of configs, messages of libraries. `clean` and
`one_line` are for text that becomes part of ours; `guarded` is the last look at all that goes to a terminal.
"""

from __future__ import annotations

import re

#: CSI up to its final byte; OSC, DCS, SOS, PM and APC up to their terminator; escapes of two and three bytes
SEQUENCE = (
    r"\x1b\[[0-?]*[ -/]*(?P<final>[@-~])?|\x1b[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?|\x1b[ -/]*[0-Z\\^-~]?"
    r"|\x9b[0-?]*[ -/]*[@-~]?|[\x90\x98\x9d-\x9f][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
)
#: C0 but tab and newline, DEL, C1, lone surrogates; what turns or hides text: bidirectional and zero-width characters,
#: Unicode's own line ends, tags
CONTROL = (
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2064\u2066-\u2069\ufeff"
    r"\U000e0001-\U000e007f]"
)
_SEQUENCE = re.compile(SEQUENCE)
_NUMBER = re.compile(r"[0-9]{1,18}")
_CONTROL = re.compile(CONTROL)
_ODD = re.compile(f"{SEQUENCE}|{CONTROL}")
#: Colours and weights; neither concealed nor blinking.
_COLOUR = re.compile(r"\x1b\[(?:(?:[0-4]|7|9|2[1-9]|3\d|4\d|9[0-7]|10[0-7]|[34]8;5;\d+|[34]8;2;\d+;\d+;\d+)?;?)*m")


def clean(text: str) -> str:
    """Colours and other sequences are dropped, other control characters become visible ones."""
    if text.isprintable():
        return text
    kept = _SEQUENCE.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROL.sub(lambda m: chr(0x2400 + ord(m[0])) if ord(m[0]) < 0x20 else "\ufffd", kept)


def one_line(text: str) -> str:
    return " ".join(clean(text).split())


def shortened(text: str, most: int = 1000) -> str:
    """Each line by its beginning and its end: an argument of 60,000 characters hides the sentence around it."""
    lines = text.split("\n")
    return "\n".join(line if len(line) <= most else f"{line[: most // 2]} … {line[-most // 2 :]}" for line in lines)


def first_words(text: str, most: int) -> str:
    """The whole words among the first `most` characters. For text whose secrets are masked later, by its reader, who
    would not recognise the first half of one."""
    cut = text[:most]
    return cut if len(text) <= most or text[most].isspace() else re.sub(r"\S*\Z", "", cut).rstrip()


def last_words(text: str, most: int) -> str:
    """The whole words among the last `most` characters."""
    cut = text[-most:]
    return cut if len(text) <= most or text[-most - 1].isspace() else re.sub(r"\A\S*", "", cut).lstrip()


def without_controls(text: str) -> str:
    """Like clean, but control characters are removed without a trace: for text that is searched, and for lines in a
    list."""
    return text if text.isprintable() else _ODD.sub("", text)


def guarded(text: str, *, colours: bool) -> str:
    """Text with newlines and tabs, and with colours where they are wanted; all else is dropped."""
    if text.isprintable():
        return text
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return _ODD.sub(lambda found: found[0] if colours and _COLOUR.fullmatch(found[0]) else "", lines)


def whole_number(text: str) -> int | None:
    """The number that 1 to 18 ASCII digits are; None of any other text.

    int() takes digits of every script, and raises an error of its own for thousands of them.
    """
    return int(text) if _NUMBER.fullmatch(text) else None
