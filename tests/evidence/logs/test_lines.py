from __future__ import annotations

import pytest

from distdbg.evidence.logs.lines import coloured, last_state, plain, states


def test_a_progress_bar_is_shown_in_its_last_state() -> None:
    bar = b"\r  0%|   |\r 50%|#  |\r100%|###|"
    assert last_state(bar) == b"100%|###|" == last_state(bar + b"\r") and states(bar)[2] == b" 50%|#  |"
    assert last_state(b"windows\r") == b"windows" and last_state(b"") == b""


@pytest.mark.parametrize(
    ("data", "text", "with_colours"),
    [
        (b"plain \xc3\xa9\ttab", "plain é\ttab", "plain é\ttab"),
        (b"\x1b[31mred\x1b[0m", "red", "\x1b[31mred\x1b[0m"),
        (b"\x1b[1;32mopen", "open", "\x1b[1;32mopen\x1b[0m"),
        (b"up\x1b[2A\x1b[Kdone", "updone", "updone"),
        (b"\x1b]0;a title\x07text", "text", "text"),
        (b"\x1b]52;c;cm0gLXJm\x1b\\text", "text", "text"),
        (b"bell\x07 null\x00 8-bit\xc2\x9b", "bell null 8-bit", "bell null 8-bit"),
        (b"half \xe2\x82", "half \ufffd", "half \ufffd"),
        (b"cut short \x1b[3", "cut short ", "cut short "),
        (b"\x1bPq#0;2\x1b\\sixel", "sixel", "sixel"),
        (b"\x1b(Bcharset\x1bM", "charset", "charset"),
    ],
)
def test_of_control_sequences_colours_alone_are_left(data: bytes, text: str, with_colours: str) -> None:
    assert plain(data) == text
    assert coloured(data) == with_colours
