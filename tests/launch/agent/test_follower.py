from __future__ import annotations

import hashlib
import os
import selectors
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from distdbg.evidence.logs.index import TimeTable
from distdbg.launch.agent.follower import Follower
from distdbg.launch.io import disk_files
from distdbg.launch.io.disk import DiskWriter
from tests.launch.file_systems import freezable_file_system, tiny_file_system

#: prints N MiB of noise in pieces of odd sizes, then its digest on the descriptor that is given
NOISE = """
import hashlib, os, random, sys
random.seed(int(sys.argv[2])); digest = hashlib.sha256(); left = int(sys.argv[1]) << 20
block = random.randbytes(1 << 20)
while left:
    piece = block[: min(left, random.choice((1, 100, 4096, 65536, 1 << 20)))]
    left -= os.write(1, piece) or 0; digest.update(piece)
os.write(2, digest.hexdigest().encode())
"""


class Loop:
    """The agent's loop, as far as the follower needs it."""

    def __init__(self, folder: Path, logs: Path | None = None, **options: int) -> None:
        self.folder, self.logs = folder, logs or folder
        self.selector = selectors.DefaultSelector()
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.losses: list[tuple[int, str, int, str]] = []
        self.writer = DiskWriter(**options)
        self.follower = Follower(self.selector, self.writer, lambda *loss: self.losses.append(loss), self.after)

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        self.timers.append((time.monotonic() + seconds, action))

    def turn(self, wait: float = 0.02) -> None:
        for key, _ in self.selector.select(wait):
            assert not callable(key.data)
            self.follower.on_readable(key)
        due = [t for t in self.timers if t[0] <= time.monotonic()]
        self.timers = [t for t in self.timers if t not in due]
        for _, action in due:
            action()

    def until(self, condition: Callable[[], bool], seconds: float = 20.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "it never came true"
            self.turn()

    def open(self, rank: int, stream: str = "stdout") -> Path:
        fifo = self.folder / f"{rank}.{time.monotonic_ns()}.{stream}.fifo"
        self.follower.open(rank, stream, fifo, self.log(rank, stream), self.log(rank, stream).with_suffix(".index"))
        return fifo

    def log(self, rank: int, stream: str = "stdout") -> Path:
        return self.logs / f"{rank}.{stream}.log"

    def start(self, rank: int, program: str, *args: object, **options: object) -> subprocess.Popen[bytes]:
        """A rank as torchrun starts it: its stdout opened by the parent, which then lets go of it."""
        with self.open(rank).open("wb") as out:
            command = [sys.executable, "-c", textwrap.dedent(program), *map(str, args)]
            process = subprocess.Popen(command, stdout=out, **options)  # type: ignore[call-overload]
        self.follower.started(rank)
        return process

    def end(self) -> None:
        self.follower.close(10)
        assert self.writer.close(10)


@pytest.fixture
def loop(tmp_path: Path):
    made = Loop(tmp_path)
    yield made
    made.end()


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.slow
def test_noise_of_four_ranks_arrives_whole(loop: Loop) -> None:
    ranks = [loop.start(rank, NOISE, 50, rank, stderr=subprocess.PIPE) for rank in range(4)]
    began = time.monotonic()
    loop.until(lambda: all(r.poll() is not None for r in ranks), 60)
    for rank, process in enumerate(ranks):
        loop.follower.close_rank(rank)
        assert process.returncode == 0
    loop.follower.close(10)
    loop.writer.flush(10)
    rate = 200 / (time.monotonic() - began)
    assert [digest(loop.log(r)) for r in range(4)] == [p.communicate()[1].decode() for p in ranks]
    assert not loop.losses and loop.follower.totals == {(r, "stdout"): 50 << 20 for r in range(4)}
    assert rate > 20, f"{rate:.0f} MB a second"
    for rank in range(4):
        assert loop.log(rank).with_suffix(".index").stat().st_size < (50 << 20) / 100


def test_no_newline_no_output_and_a_progress_bar(loop: Loop) -> None:
    programs = ["import os; os.write(1, b'no newline')", "pass", "import os; os.write(1, b'\\r 10%\\r100%\\xff\\n')"]
    ranks = [loop.start(rank, program) for rank, program in enumerate(programs)]
    loop.until(lambda: all(r.poll() is not None for r in ranks))
    for rank in range(3):
        loop.follower.close_rank(rank)
    loop.writer.flush(10)
    assert [loop.log(rank).read_bytes() for rank in range(3)] == [b"no newline", b"", b"\r 10%\r100%\xff\n"]
    assert loop.follower.pending() == 0


def test_the_index_says_when_each_line_came(loop: Loop) -> None:
    rank = loop.start(0, "import sys\nfor line in sys.stdin: print(line.strip(), flush=True)", stdin=subprocess.PIPE)
    times = []
    for word in (b"one\n", b"two\n", b"three\n"):
        size = loop.follower.totals[0, "stdout"]
        times.append(time.time_ns())
        rank.stdin.write(word)
        rank.stdin.flush()
        loop.until(lambda size=size, word=word: loop.follower.totals[0, "stdout"] == size + len(word))
    rank.stdin.close()
    rank.wait()
    loop.follower.close_rank(0)
    loop.writer.flush(10)
    table = TimeTable()
    table.add(loop.log(0).with_suffix(".index").read_bytes())
    found = [next(table.cut(offset, b"x"))[0] for offset in (0, 4, 8)]
    assert all(sent <= t < sent + 5e9 for sent, t in zip(times, found, strict=True)) and found == sorted(found)


def test_the_end_is_not_seen_before_the_beginning(loop: Loop) -> None:
    fifo = loop.open(0)
    for _ in range(3):
        loop.turn()
    assert loop.follower.pending() == 1
    with fifo.open("wb") as out:  # torchrun opens it before there is a rank
        loop.turn()
        out.write(b"first words")
    loop.follower.started(0)
    loop.follower.close_rank(0)
    loop.writer.flush(10)
    assert loop.log(0).read_bytes() == b"first words" and loop.follower.pending() == 0


def test_a_grandchild_with_the_pipe_holds_nothing_up_and_meets_no_broken_pipe(loop: Loop) -> None:
    rank = loop.start(
        0,
        """
        import os, sys
        print("rank", flush=True)
        if os.fork() == 0:
            sys.stdin.readline()
            print("grandchild", flush=True)
            os._exit(0)
        os._exit(0)
        """,
        stdin=subprocess.PIPE,
    )
    loop.until(lambda: rank.poll() is not None)
    began = time.monotonic()
    loop.follower.close_rank(0)
    assert time.monotonic() - began < 0.5 and loop.follower.pending() == 1
    rank.stdin.close()
    loop.until(lambda: loop.follower.pending() == 0)
    loop.writer.flush(10)
    assert loop.log(0).read_bytes() == b"rank\ngrandchild\n"


def test_a_restarted_rank_has_its_own_log(loop: Loop, tmp_path: Path) -> None:
    first = loop.start(0, "print('first')")
    first.wait()
    loop.logs = tmp_path / "second"
    second = loop.start(0, "print('second')")
    second.wait()
    loop.follower.close_rank(0)
    loop.until(lambda: loop.follower.pending() == 0)
    loop.writer.flush(10)
    assert (tmp_path / "0.stdout.log").read_text() == "first\n" and loop.log(0).read_text() == "second\n"


def test_64_ranks_leave_other_pipes_their_room(loop: Loop) -> None:
    capacities = []
    for rank in range(64):
        for stream in ("stdout", "stderr"):
            loop.open(rank, stream)
    for stream in loop.follower._streams.values():
        capacities.append(stream.capacity)
    allowed = int(Path("/proc/sys/fs/pipe-user-pages-soft").read_text()) * os.sysconf("SC_PAGE_SIZE")
    assert max(capacities) == 1 << 20 and min(capacities) >= 1 << 12
    assert sum(capacities) <= allowed // 2
    for rank in range(64):
        loop.follower.close_rank(rank)
    assert loop.follower.pending() == 0


def test_many_small_writes_are_read_together(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = []
    real = os.read
    monkeypatch.setattr(os, "read", lambda fd, n: reads.append(1) or real(fd, n))
    program = "import os, time\nfor _ in range(500): os.write(1, b'step\\n'); time.sleep(0.0005)"
    rank = loop.start(0, program)
    loop.until(lambda: rank.poll() is not None)
    loop.follower.close_rank(0)
    assert loop.follower.totals[0, "stdout"] == 2500
    assert len(reads) < 250, f"{len(reads)} reads of 500 writes"


@pytest.mark.slow
def test_memory_stays_bounded_while_a_rank_prints_200_mb(tmp_path: Path) -> None:
    program = f"""
    import resource, sys
    from pathlib import Path
    from tests.launch.agent.test_follower import Loop, NOISE
    import subprocess
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    loop = Loop(Path({str(tmp_path)!r}))
    rank = loop.start(0, NOISE, 200, 1, stderr=subprocess.DEVNULL)
    loop.until(lambda: rank.poll() is not None, 60)
    loop.follower.close_rank(0)
    loop.end()
    print(base, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, sys.platform)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, cwd=Path.cwd()
    )
    assert done.returncode == 0, done.stderr
    base, peak = (int(word) for word in done.stdout.split()[:2])
    assert (tmp_path / "0.stdout.log").stat().st_size == 200 << 20
    assert peak - base < 30 << 10, f"{(peak - base) >> 10} MiB more than without"


@pytest.mark.slow
def test_a_slow_disk_slows_the_printing_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = disk_files.write_pieces
    monkeypatch.setattr(disk_files, "write_pieces", lambda *a: time.sleep(0.02) or real(*a))
    loop = Loop(tmp_path, log_bytes=256 << 10)
    rank = loop.start(0, NOISE, 8, 3, stderr=subprocess.PIPE)
    loop.until(lambda: rank.poll() is not None)
    loop.follower.close_rank(0)
    loop.end()
    assert digest(loop.log(0)) == rank.communicate()[1].decode() and not loop.losses


def test_a_full_disk_lets_the_rank_finish_and_the_loss_is_reported(tmp_path: Path) -> None:
    with tiny_file_system(tmp_path / "tiny") as folder:
        loop = Loop(tmp_path, folder)
        rank = loop.start(0, NOISE, 30, 5, stderr=subprocess.DEVNULL)
        loop.until(lambda: rank.poll() is not None)
        loop.follower.close_rank(0)
        loop.end()
        assert rank.returncode == 0
        kept = loop.log(0).stat().st_size
        assert kept > 500_000 and sum(count for _, _, count, _ in loop.losses) == (30 << 20) - kept
        assert {(r, s) for r, s, _, _ in loop.losses} == {(0, "stdout")} and "full" in loop.losses[0][3]
        assert len(loop.losses) <= 3, "one report, not one for each read"


@pytest.mark.slow
def test_a_frozen_disk_stalls_no_rank(tmp_path: Path) -> None:
    with freezable_file_system(tmp_path / "disk") as frozen:
        loop = Loop(tmp_path, frozen.path, log_bytes=1 << 20)
        steps = """
        import os, time
        slowest = 0
        for step in range(3000):
            began = time.monotonic()
            os.write(1, b"%05d " % step + bytes(10_000))
            slowest = max(slowest, time.monotonic() - began)
            time.sleep(0.0005)
        os.write(2, b"%f" % slowest)
        """
        loop.writer.append(frozen.path / "warm", b"", log=True)
        loop.writer.flush(10)
        frozen.freeze()
        rank = loop.start(0, steps, stderr=subprocess.PIPE)
        loop.until(lambda: rank.poll() is not None, 30)
        slowest = float(rank.communicate()[1])
        loop.follower.close_rank(0)
        assert loop.losses and "did not answer" in loop.losses[0][3]
        frozen.thaw()
        loop.end()
        assert slowest < 1.0, f"one step waited {slowest:.2f} s"
        kept = loop.log(0).stat().st_size
        assert kept > 900_000 and kept + sum(count for _, _, count, _ in loop.losses) == 3000 * 10_006


def test_close_does_not_wait_for_somebody_who_prints_on(loop: Loop) -> None:
    rank = loop.start(0, "while True: print('x' * 10000)", stderr=subprocess.DEVNULL)
    loop.until(lambda: loop.follower.totals[0, "stdout"] > 1 << 20)
    began = time.monotonic()
    loop.follower.close_rank(0)
    loop.follower.close(5)
    took = time.monotonic() - began
    rank.send_signal(signal.SIGKILL)
    rank.wait()
    assert took < 4
