"""Nothing in text of others is obeyed by a terminal, or turns a line round."""

from __future__ import annotations

import re

import pytest

from distdbg.plain_text import clean, first_words, guarded, last_words, one_line, shortened, without_controls

RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
HOSTILE = (
    "\x1b[2J\x1b[H",
    "\x1b]0;title\x07",
    "\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\",
    "\x1bP+q544e\x1b\\",
    "\x1b_apc\x1b\\",
    "\x1b[8mhidden\x1b[0m",
    "\x1b",
    "\x1b[",
    "\x9b31mC1",
    "\x9d0;title\x9c",
    "a\rb",
    "a\x08b",
    "\x07",
    "\u202egnp.exe",
    "\u2066a\u2069",
    "a\u2028b",
    "zero\u200bwidth",
    "\udcff",
    "\x7f",
)


@pytest.mark.parametrize("hostile", HOSTILE, ids=ascii)
def test_no_form_of_it_holds_a_control(hostile):
    text = f"before {hostile} after"
    for shown in (clean(text), one_line(text), without_controls(text), guarded(text, colours=False)):
        assert not RAW.search(shown), ascii(shown)
        assert shown.startswith("before") and shown.endswith("ter")  # a sequence without an end may take some
    assert not RAW.search(re.sub(r"\x1b\[[0-9;]*m", "", guarded(text, colours=True)))


def test_our_own_colours_stay_where_they_are_wanted():
    text = "\x1b[1;31merror\x1b[0m\tand \x1b[38;5;208morange\x1b[m\nnext"
    assert guarded(text, colours=True) == text
    assert guarded(text, colours=False) == "error\tand orange\nnext"
    assert guarded("\x1b[5mblinks\x1b[8mhides\x1b[0;8mboth", colours=True) == "blinkshidesboth"


def test_text_of_people_stays():
    for text in ("naïve café", "训练", "🙂", "a\tb\nc", "→ ▶ └─"):
        assert clean(text) == guarded(text, colours=False) == text


def test_a_long_text_keeps_its_beginning_and_its_end():
    assert shortened("short") == "short"
    found = shortened("begin" + "x" * 60_000 + "end", most=100)
    assert found.startswith("begin") and found.endswith("end") and len(found) < 110
    assert shortened("a\nb" + "x" * 60_000, most=100).startswith("a\nbxx")


@pytest.mark.parametrize(
    ("most", "first", "last"),
    [
        (3, "", ""),
        (4, "abcd", "ijkl"),
        (6, "abcd", "ijkl"),
        (9, "abcd efgh", "efgh ijkl"),
        (99, "abcd efgh ijkl", "abcd efgh ijkl"),
    ],
)
def test_no_part_of_a_word_is_left(most, first, last):
    assert (first_words("abcd efgh ijkl", most), last_words("abcd efgh ijkl", most)) == (first, last)
