"""What a stream may show."""

import io
import os
import pty
import sys

import pytest

from distdbg.terminal import in_colour, outlive_terminal


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


def test_a_closed_window_costs_the_output_alone(monkeypatch):
    window, terminal = pty.openpty()
    first = os.fdopen(os.dup(terminal), "w"), os.fdopen(os.dup(terminal), "w")  # the interpreter keeps them, too
    for name, stream in zip(("stdout", "stderr"), first, strict=True):
        monkeypatch.setattr(sys, name, stream)
    outlive_terminal()
    print("shown", file=sys.stderr, flush=True)
    assert os.read(window, 100) == b"shown\r\n"
    os.close(window)
    with pytest.raises(OSError):
        os.write(terminal, b"x")
    for stream in (sys.stdout, sys.stderr):
        print("lost", file=stream, flush=True)
        print("lost, too", file=stream, flush=True)
    os.close(terminal)
