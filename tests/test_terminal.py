"""What a stream may show."""

import io

import pytest

from distdbg.terminal import in_colour


class Tty(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("stream", "said", "shown"),
    [(Tty(), "", True), (Tty(), "1", False), (io.StringIO(), "", False)],
    ids=["a terminal", "NO_COLOR", "a pipe"],
)
def test_colours_are_for_terminals_that_want_them(monkeypatch, stream, said, shown):
    monkeypatch.setenv("NO_COLOR", said)
    assert in_colour(stream) is shown
