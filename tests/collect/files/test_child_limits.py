"""The limits of readers are absolute: constants and free memory bound them, whatever the length of a file."""

import gzip
import subprocess
import sys

import pytest

from distdbg.collect.files import child_limits
from distdbg.collect.files.child_limits import MOST_MEMORY, LostTime, memory_limit, why_it_ended
from distdbg.collect.machine import cgroups

GIB = 1 << 30


@pytest.mark.parametrize(
    ("free", "size", "by_machine"),
    [(None, MOST_MEMORY, False), (64 * GIB, MOST_MEMORY, False), (4 * GIB, 3 * GIB, True), (0, 0, True)],
)
def test_the_limit_is_lowered_to_what_is_free(free, size, by_machine):
    limit = memory_limit(free)
    said = limit.exceeded(1 << 40)
    assert (limit.size, limit.by_machine, "free here" in said) == (size, by_machine, by_machine)


def test_a_short_file_gets_less_than_a_long_one():
    limit = memory_limit(None)
    found = [limit.for_content(length) for length in (0, 1 << 20, 1 << 40)]
    assert found == [GIB, GIB + (8 << 20), MOST_MEMORY]
    assert "1 GiB of memory and 8 bytes for each" in limit.exceeded(1 << 20)
    assert "4 GiB of memory" in limit.exceeded(1 << 40)


@pytest.mark.parametrize(
    ("counters", "available", "free"),
    [
        ({"limit": 10 * GIB, "current": 9 * GIB, "reclaimable": GIB}, 30 * GIB, 2 * GIB),
        ({"limit": 90 * GIB, "current": 0, "reclaimable": None}, 30 * GIB, 30 * GIB),
        ({"limit": None, "current": 5}, 30 * GIB, 30 * GIB),
        ({"limit": GIB, "current": 2 * GIB}, 30 * GIB, 0),
        ({"oom_kill": None}, None, None),
    ],
)
def test_free_memory_is_the_smaller_of_the_machines_and_the_groups(monkeypatch, counters, available, free):
    monkeypatch.setattr(cgroups, "memory_counters", lambda: counters)
    monkeypatch.setattr(cgroups, "available_bytes", lambda: available)
    assert cgroups.free_bytes() == free


def test_what_an_end_of_a_reader_means():
    assert "60 s" in why_it_ended(None)
    assert "45 s of CPU time" in why_it_ended(-24)
    assert "SIGSEGV" in why_it_ended(-11)


def test_unreadable_files_have_one_budget_of_time_together():
    lost = LostTime()
    lost.add(child_limits.MOST_LOST_S - 1)
    assert not lost.spent
    lost.add(1.5)
    assert lost.spent
    assert "2 unreadable files" in str(lost)


def reader(script, memory, *words, given=""):
    """A reader with another limit than its own: what it says, and its peak of memory in KiB."""
    code = (
        f"import sys\nsys.argv = ['reader', *{list(map(str, words))!r}]\n"
        f"from distdbg.collect.files import child_limits, {script}\nchild_limits.MOST_MEMORY = {memory}\n"
        f"import os\nend = os._exit\n"
        "def said(code):\n"
        "    peak = next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM'))\n"
        "    sys.stderr.write(peak)\n"  # getrusage's would be that of the process that started it
        "    sys.stderr.flush()\n    sys.stdout.flush()\n    end(code)\n"
        f"os._exit = said\nos._exit({script}.main())"
    )
    done = subprocess.run([sys.executable, "-c", code], input=given, capture_output=True, text=True, timeout=100)
    return done.stdout, int(done.stderr)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "says"), [(1_000_000, "no memory snapshot"), (5_000_000, "of memory"), (40_000_000, "of memory")]
)
def test_a_long_file_has_the_limit_of_a_short_one(tmp_path, count, says):
    """A list of empty lists: 1 byte each in the pickle, 64 in memory."""
    path = tmp_path / "bomb.pickle"
    path.write_bytes(b"\x80\x04](" + b"]" * count + b"e.")
    said, peak = reader("snapshot_child", 300 << 20, path)
    assert says in said
    assert peak < 350 << 10


@pytest.mark.slow
def test_a_gzip_bomb_ends_at_its_ratio(tmp_path):
    path = tmp_path / "bomb.pickle.gz"
    path.write_bytes(gzip.compress(b"\x80\x04](" + b"]" * 4_000_000 + b"e.", 6))
    said, _ = reader("snapshot_child", 1 << 30, path)
    assert "250 times its length" in said


@pytest.mark.slow
def test_a_recorder_that_grows_in_memory(tmp_path):
    path = tmp_path / "fr_0"
    path.write_bytes(b"\x80\x02}(X\x07\x00\x00\x00versionK\x01X\x09\x00\x00\x00pg_config}X\x07\x00\x00\x00entries]("
                     + b"]" * 20_000_000 + b"eu.")  # fmt: skip
    said, peak = reader("recorder_child", 300 << 20, given=f'"{path}"\n')
    assert "GiB of memory" in said
    assert peak < 350 << 10


@pytest.mark.slow
def test_a_small_file_that_unpacks_to_lists_stays_below_two_gib(tmp_path):
    path = tmp_path / "bomb.pickle.gz"
    body = b"\x80\x04](" + b"]" * 100_000_000 + b"e."
    path.write_bytes(gzip.compress(body, 1))
    said, peak = reader("snapshot_child", MOST_MEMORY, path)
    assert "1 GiB of memory and 8 bytes for each" in said
    assert peak < 1600 << 10


@pytest.mark.slow
def test_so_does_a_recorder(tmp_path):
    path = tmp_path / "fr_0"
    path.write_bytes(b"\x80\x02](" + b"]" * 60_000_000 + b"e.")
    said, peak = reader("recorder_child", MOST_MEMORY, given=f'"{path}"\n')
    assert "1 GiB of memory and 8 bytes for each" in said
    assert peak < 1700 << 10
