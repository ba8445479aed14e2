from __future__ import annotations

import os
import pty
import random
import termios
import threading
import time
import tty
from pathlib import Path

import pytest

from distdbg.launch.live.console import Console
from tests.collect.log_runs import WrittenRun


class Reader:
    """Reads a descriptor to its end, beside the test."""

    def __init__(self) -> None:
        self.end, self.out = os.pipe()
        self.data = b""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while part := os.read(self.end, 1 << 16):
            self.data += part

    def until(self, size: int) -> bytes:
        deadline = time.monotonic() + 60
        while len(self.data) < size:
            assert time.monotonic() < deadline, self.data
            time.sleep(0.002)
        return self.data

    def close(self) -> bytes:
        os.close(self.out)
        self._thread.join(10)
        os.close(self.end)
        return self.data


@pytest.fixture
def outputs():
    out, err = Reader(), Reader()
    return out, err


def test_one_rank_is_shown_byte_by_byte_as_it_prints(tmp_path: Path, outputs) -> None:
    out, err = outputs
    written = WrittenRun(tmp_path)
    console = Console(written.run, [0], world_size=2, out=out.out, err=err.out)
    written.say(1, "not shown\n", 1).say(0, b"\r 10%", 1)
    assert out.until(5) == b"\r 10%"
    noise = random.Random(3).randbytes(1 << 20)
    written.say(0, noise, 2).say(0, "Traceback\n", 3, "stderr")
    assert console.close() and console.poll().lines == []
    assert (out.close(), err.close()) == (b"\r 10%" + noise, b"Traceback\n")


def test_several_are_shown_as_lines_with_a_prefix(tmp_path: Path, outputs) -> None:
    out, err = outputs
    written = WrittenRun(tmp_path)
    written.say(0, "a\nhalf", 1).say(1, b"\r1%\r2%\n\x1b[2Jb\n", 2).say(1, "err\n", 3, "stderr")
    console = Console(written.run, "all", world_size=2, out=out.out, err=err.out)
    out.until(len("[rank 0] a\n[rank 1] 2%\n[rank 1] b\n"))
    assert console.close()
    assert out.close() == b"[rank 0] a\n[rank 1] 2%\n[rank 1] b\n[rank 0] half\n" and err.close() == b"[rank 1] err\n"


def test_a_world_of_one_has_no_prefix_and_none_shows_nothing(tmp_path: Path, outputs) -> None:
    out, err = outputs
    written = WrittenRun(tmp_path)
    written.say(0, "alone", 1)
    assert Console(written.run, "none", out=out.out, err=err.out).close()
    assert out.data == b""
    assert Console(written.run, "all", world_size=1, out=out.out, err=err.out).close()
    assert out.close() == b"alone" and err.close() == b""


def test_a_live_view_gets_lines_and_what_is_still_printed(tmp_path: Path, outputs) -> None:
    out, err = outputs
    written = WrittenRun(tmp_path)
    console = Console(written.run, [0], live=True, out=out.out, err=err.out)
    written.say(0, b"loaded\nepoch 1:  10%\r\xe2\x96", 1)
    deadline = time.monotonic() + 60
    shown = console.poll()
    lines = list(shown.lines)
    while not shown.partial:
        assert time.monotonic() < deadline
        shown = console.poll()
        lines += shown.lines
    assert lines == [b"loaded"]
    assert shown.partial[0] == b"epoch 1:  10%"
    written.say(0, b"\x88 20%", 2)
    given = []
    assert console.close(show=given.append)
    assert [line for shown in given for line in shown.lines] == ["\u2588 20%".encode()]
    assert given[-1].partial == [] and out.close() == b""


def test_a_live_view_that_is_slow_gets_every_line_and_holds_few_of_them(tmp_path: Path) -> None:
    written = WrittenRun(tmp_path)
    written.say(0, "".join(f"line {i}\n" for i in range(10_000)), 1)
    console = Console(written.run, [0], live=True)
    deadline = time.monotonic() + 60
    while len(console._lines) < 500:
        assert time.monotonic() < deadline
        time.sleep(0.002)
    given = [console.poll()]
    assert console.close(show=given.append)
    assert [line for shown in given for line in shown.lines] == [b"line %d" % i for i in range(10_000)]
    assert max(len(shown.lines) for shown in given) <= 500


def test_a_stopped_terminal_holds_the_launcher_up_for_no_longer_than_asked(tmp_path: Path) -> None:
    main, side = pty.openpty()
    tty.setraw(side)
    written = WrittenRun(tmp_path)
    console = Console(written.run, [0], out=side, err=side)
    written.say(0, "shown\n", 1)
    assert os.read(main, 100) == b"shown\n"
    termios.tcflow(side, termios.TCOOFF)  # Ctrl-S
    written.say(0, "x" * 3_000_000, 2)
    time.sleep(0.1)
    began = time.monotonic()
    console.poll()
    assert time.monotonic() - began < 0.05
    assert not console.close(stalled=0.3) and time.monotonic() - began < 1.0 and console.waits_for_reader
    asked = iter((False, True))
    console.finish(lambda: next(asked))  # Ctrl-C
    termios.tcflow(side, termios.TCOON)
    os.close(main)
    console._thread.join(5)
    assert not console._thread.is_alive()
    os.close(side)


def test_a_reader_that_leaves_ends_the_showing_only(tmp_path: Path) -> None:
    end, out = os.pipe()
    written = WrittenRun(tmp_path)
    console = Console(written.run, [0], out=out, err=out)
    os.close(end)
    written.say(0, "x\n", 1)
    assert console.close()
    os.close(out)


def test_a_descriptor_that_somebody_made_non_blocking_gets_every_byte(tmp_path: Path, outputs) -> None:
    out, err = outputs
    os.set_blocking(out.out, False)
    written = WrittenRun(tmp_path)
    noise = random.Random(4).randbytes(1 << 20)
    written.say(0, noise, 1)
    console = Console(written.run, [0], out=out.out, err=err.out)
    assert console.close() and out.close() == noise


def test_reader_that_reads_late_gets_all_of_it(tmp_path: Path) -> None:
    end, out = os.pipe()
    written = WrittenRun(tmp_path)
    written.say(0, b"x" * 300_000, 1)
    console = Console(written.run, [0], out=out, err=out)
    assert not console.close(stalled=0.3) and console.waits_for_reader
    ending = threading.Thread(target=console.finish, args=(lambda: False,))
    ending.start()
    taken = 0
    while taken < 300_000:
        taken += len(os.read(end, 30_000))
    ending.join(10)
    assert not ending.is_alive() and not console.waits_for_reader
    os.close(end)
    os.close(out)
