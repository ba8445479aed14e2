"""What a stream may show."""

import io
import os
import pty
import subprocess
import sys

import pytest

from distdbg.terminal import in_colour, is_behind, outlive_terminal


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


def test_reader_that_stops_reading_delays_no_print(monkeypatch):
    reader, writer = os.pipe()
    first = os.fdopen(writer, "w")  # the interpreter keeps it, too
    monkeypatch.setattr(sys, "stderr", first)
    outlive_terminal()
    lines = "".join(f"{i}\n" for i in range(100_000))  # 589 KB, and a pipe holds 64
    print(lines, end="", file=sys.stderr, flush=True)
    assert is_behind(sys.stderr)
    with os.fdopen(reader) as file:
        assert file.read(len(lines)) == lines
    assert not is_behind(sys.stderr, within_s=10)
    print("nobody reads this", file=sys.stderr, flush=True)
    assert not is_behind(sys.stderr, within_s=10)


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


def test_a_closed_standard_input_is_an_error_of_who_reads_it(tmp_path):
    """And not the file that was opened next, which would get its descriptor."""
    (tmp_path / "train.py").write_text("x = 1\n")
    for words, code in ((["lint", "--stdin"], 5), (["explain", "-"], 3), (["lint", "train.py"], 0)):
        command = " ".join([sys.executable, "-m", "distdbg", *words, "<&-"])
        done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.returncode == code and "Traceback" not in done.stderr, done
        assert ("standard input is closed" in done.stdout + done.stderr) is (code != 0), done
