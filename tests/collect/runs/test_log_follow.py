from __future__ import annotations

import json
import socket
import time
from pathlib import Path

from distdbg.collect.runs import log_follow
from distdbg.collect.runs.log_follow import LineAssembler, LogFollower
from distdbg.collect.runs.log_reader import Chunk
from tests.collect.log_runs import SECOND, START, WrittenRun


def gather(follower: LogFollower, size: int, seconds: float = 5.0) -> list[Chunk]:
    """Chunks until `size` bytes have come."""
    chunks: list[Chunk] = []
    deadline = time.monotonic() + seconds
    while sum(len(c.data) for c in chunks) < size:
        assert time.monotonic() < deadline, chunks
        chunks += follower.poll()
        time.sleep(0.002)
    return chunks


def test_what_grows_and_what_comes_is_seen(tmp_path: Path) -> None:
    written = WrittenRun(tmp_path)
    follower = LogFollower(written.run)
    assert follower.poll() == [] and not follower.has_ended()
    written.say(0, "first\n", 1)
    assert [c.data for c in gather(follower, 6)] == [b"first\n"]
    written.say(1, "another rank\n", 2)
    assert [c.data for c in gather(follower, 13)] == [b"another rank\n"]
    written.say(0, "err\n", 3, "stderr").say(0, "sec", 4)
    assert [c.data for c in gather(follower, 7)] == [b"err\n", b"sec"]
    written.say(0, "restarted\n", 5, attempt=2).say(0, "ond\n", 5)
    assert {(c.attempt, c.data) for c in gather(follower, 14)} == {(2, b"restarted\n"), (1, b"ond\n")}


def test_log_that_was_deleted_and_has_begun_again_is_read_from_its_start(tmp_path: Path) -> None:
    written = WrittenRun(tmp_path)
    follower = LogFollower(written.run)
    written.say(0, "a longer line before\n", 1)
    assert [c.data for c in gather(follower, 21)] == [b"a longer line before\n"]
    files = written.run.attempt(1).rank(0)
    with files.stdout.open():  # the agent opens the new log before it closes the old one
        files.stdout.unlink()
        files.index("stdout").unlink()
        assert follower.poll() == [] and not follower.behind()
        written.say(0, "after\n", 2)
    assert follower.behind()
    [chunk] = gather(follower, 6)
    assert (chunk.data, chunk.offset, chunk.t_ns) == (b"after\n", 0, START + 2 * SECOND)


def test_it_ends_when_the_run_has_and_everything_is_given(tmp_path: Path) -> None:
    written = WrittenRun(tmp_path, ranks=[0])
    follower = LogFollower(written.run)
    written.finish()
    written.say(0, "last words", 1)
    given, deadline = b"", time.monotonic() + 60
    while not follower.has_ended():
        assert time.monotonic() < deadline
        given += b"".join(c.data for c in follower.poll())
    assert given == b"last words" and follower.poll() == []


def test_a_dead_launcher_ends_it_too(tmp_path: Path) -> None:
    written = WrittenRun(tmp_path, ranks=[0])
    written.run.job.write_text(json.dumps({"launcher": {"pid": 2**22 + 1, "host": socket.gethostname()}}))
    follower, deadline = LogFollower(written.run), time.monotonic() + 60
    while not follower.has_ended():
        assert time.monotonic() < deadline
        follower.poll()


def test_only_what_was_asked_for(tmp_path: Path) -> None:
    written = WrittenRun(tmp_path)
    for rank in range(3):
        written.say(rank, f"{rank}\n", rank).say(rank, "err\n", rank, "stderr").say(rank, "old\n", 9, attempt=2)
    follower = LogFollower(written.run, ranks=[1], streams=["stdout"], attempt=1)
    assert [c.data for c in gather(follower, 2)] == [b"1\n"] and follower.poll() == [] and not follower.behind()


def test_old_logs_are_caught_up_in_the_order_of_time(tmp_path: Path, monkeypatch) -> None:
    """However much is read of each at once: rank 1's day in one part, rank 0's in many."""
    monkeypatch.setattr(log_follow, "bytes_at_once", lambda _: 100)
    written = WrittenRun(tmp_path)
    for i in range(200):
        written.say(0, f"rank 0 says {i:4}\n" * 5, i)
        if i % 20 == 0:
            written.say(1, f"{i}\n", i + 0.5)
    size = sum(written.run.attempt(1).rank(r).stdout.stat().st_size for r in (0, 1))
    chunks = gather(LogFollower(written.run), size)
    assert [c.t_ns for c in chunks] == sorted(c.t_ns for c in chunks)


def test_300_ranks_are_all_looked_at(tmp_path: Path) -> None:
    written = WrittenRun(tmp_path)
    for rank in range(300):
        written.say(rank, f"{rank}\n", 300 - rank)
    follower = LogFollower(written.run)
    chunks = gather(follower, 1090)
    assert [c.rank for c in chunks] == list(range(299, -1, -1))
    for tails in follower._tails.values():
        for tail in tails:
            tail.lively_until = 0.0
    written.say(299, "again\n", 301)
    assert [c.data for c in gather(follower, 6)] == [b"again\n"]


def test_lines_are_given_when_they_are_whole_and_bars_while_they_move() -> None:
    lines = LineAssembler()
    assert lines.feed([Chunk(1, 1, 0, "stdout", 0, b"\r 10%"), Chunk(2, 1, 1, "stdout", 0, b"x\ny")])[0].data == b"x"
    assert lines.partial == {(0, "stdout"): b"\r 10%", (1, "stdout"): b"y"}
    assert [(line.rank, line.data, line.t_ns) for line in lines.feed([Chunk(3, 1, 0, "stdout", 5, b"\r20%\n")])] == [
        (0, b"\r 10%\r20%", 1)
    ]
    assert [line.data for line in lines.rest()] == [b"y"] and lines.partial == {}
