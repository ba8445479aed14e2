from __future__ import annotations

import os
import random
import tracemalloc
from pathlib import Path

import pytest

from distdbg.collect.runs.log_reader import (
    bytes_at_once,
    choose_attempt,
    choose_ranks,
    lines_in_turn,
    losses,
    merged_lines,
    raw_chunks,
    stream_readers,
)
from distdbg.errors import NothingToAnalyse
from tests.collect.log_runs import START, WrittenRun


def test_lines_of_all_ranks_and_streams_merge_by_time(tmp_path: Path) -> None:
    written = WrittenRun(tmp_path)
    written.say(0, "a\n", 1).say(1, "b\n", 2).say(0, "err\n", 3, "stderr").say(1, "c\n", 4).say(0, "d\nsame time\n", 4)
    lines = list(merged_lines(stream_readers(written.run.attempt(1), [0, 1])))
    assert [line.data for line in lines] == [b"a", b"b", b"err", b"d", b"same time", b"c"]
    assert [(line.rank, line.stream) for line in lines[:3]] == [(0, "stdout"), (1, "stdout"), (0, "stderr")]
    assert lines[0].t_ns == START + 10**9


def test_in_turn_means_rank_after_rank(tmp_path: Path) -> None:
    written = WrittenRun(tmp_path)
    written.say(1, "b\n", 1).say(0, "a\n", 2).say(0, "err\n", 1, "stderr")
    assert [line.data for line in lines_in_turn(stream_readers(written.run.attempt(1), [0, 1]))] == [b"err", b"a", b"b"]


def test_raw_is_every_byte_in_the_order_of_arrival(tmp_path: Path) -> None:
    written = WrittenRun(tmp_path)
    noise = random.Random(1).randbytes(300_000)
    for i in range(0, len(noise), 3000):
        written.say(0, noise[i : i + 3000], i, "stderr" if i % 2000 else "stdout")
    readers = stream_readers(written.run.attempt(1), [0])
    assert b"".join(chunk.data for chunk in raw_chunks(readers)) == noise
    [alone] = stream_readers(written.run.attempt(1), [0], ["stdout"])
    assert b"".join(c.data for c in raw_chunks([alone])) == alone.log.read_bytes()


def test_a_log_without_an_index_or_with_half_of_one_is_read_whole(tmp_path: Path) -> None:
    written = WrittenRun(tmp_path)
    written.say(0, "undated\n", None).say(1, "one\n", 1).say(1, "two\n", 2)
    index = written.run.attempt(1).rank(1).index("stdout")
    os.truncate(index, index.stat().st_size - 5)
    lines = list(merged_lines(stream_readers(written.run.attempt(1), [0, 1])))
    assert [(line.data, line.t_ns - START if line.t_ns else 0) for line in lines] == [
        (b"undated", 0),
        (b"one", 10**9),
        (b"two", 10**9),  # its own entry is cut short: not earlier than the one before
    ]


def test_a_rank_that_printed_nothing_has_no_lines(tmp_path: Path) -> None:
    written = WrittenRun(tmp_path, ranks=[0])
    assert list(merged_lines(stream_readers(written.run.attempt(1), [0]))) == []


def test_memory_does_not_grow_with_the_logs(tmp_path: Path) -> None:
    written = WrittenRun(tmp_path)
    for rank in range(8):
        for i in range(16):
            written.say(rank, (b"%0511d\n" % i) * 1000, i)  # 8 ranks of 8 MB
    written.say(8, b"x" * (8 << 20), 3)  # and one line of 8 MB
    tracemalloc.start()
    count = sum(1 for _ in merged_lines(stream_readers(written.run.attempt(1), range(9))))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 8 * 16 * 1000 + 256 and peak < 20 << 20, f"{peak >> 20} MiB"
    assert 2 * 1024 * bytes_at_once(2 * 1024) <= 16 << 20


def test_what_is_not_there_is_named_with_what_is(tmp_path: Path) -> None:
    written = WrittenRun(tmp_path)
    with pytest.raises(NothingToAnalyse, match="started no rank"):
        choose_attempt(written.run, None)
    for rank in range(4):
        written.say(rank, "x\n", 1, attempt=2)
    assert choose_attempt(written.run, None).number == 2
    assert choose_ranks(written.run.attempt(2), None) == [0, 1, 2, 3]
    with pytest.raises(NothingToAnalyse, match=r"no attempt 7\n.*: 2"):
        choose_attempt(written.run, 7)
    with pytest.raises(NothingToAnalyse, match=r"no ranks 9-10\n.*0-3"):
        choose_ranks(written.run.attempt(2), [1, 9, 10])


def test_losses_are_summed_from_the_agents_events(tmp_path: Path) -> None:
    written = WrittenRun(tmp_path, ranks=[0, 1])
    written.lose(1, "stderr", 10, "full")
    written.lose(1, "stderr", 5, "fuller")
    assert losses(written.run.attempt(1)) == {(1, "stderr"): (15, "fuller")}
