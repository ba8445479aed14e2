from __future__ import annotations

import errno
import os
import resource
import shutil
import time
from pathlib import Path

import pytest

from distdbg.evidence.logs.index import Span
from distdbg.launch.io import disk_files, reserve
from distdbg.launch.io.disk import FROZEN_S, DiskWriter
from tests.launch.file_systems import freezable_file_system, tiny_file_system


def until(condition, seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.005)


def parse_index(text: bytes) -> list[Span]:
    return [Span(*map(int, line.split())) for line in text.splitlines()]


@pytest.fixture
def disk():
    writer = DiskWriter()
    yield writer
    writer.close(5)


def test_what_is_appended_comes_in_its_order_and_folders_are_made(disk: DiskWriter, tmp_path: Path) -> None:
    events, log = tmp_path / "a/b/events.jsonl", tmp_path / "a/ranks/0/stdout.log"
    for i in range(2000):
        assert disk.append(events, b"%d\n" % i)
        assert disk.append(log, b"line %d\n" % i, log=True)
    assert disk.write_whole(tmp_path / "a/exit.json", b"{}")
    assert disk.flush(10)
    assert events.read_bytes() == b"".join(b"%d\n" % i for i in range(2000))
    assert log.read_bytes() == b"".join(b"line %d\n" % i for i in range(2000))
    assert (tmp_path / "a/exit.json").read_bytes() == b"{}"
    assert (log.stat().st_mode & 0o777, log.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert not list(tmp_path.rglob("*.tmp")) and disk.lost == {}


def test_the_index_dates_quiet_streams_exactly_and_busy_ones_every_20_ms(disk: DiskWriter, tmp_path: Path) -> None:
    log, index = tmp_path / "stdout.log", tmp_path / "stdout.index"
    before = time.time_ns()
    for _ in range(10):
        disk.append(log, b"quiet\n", log=True, index=index)
    disk.flush(10)
    spans = parse_index(index.read_bytes())
    assert [s.offset for s in spans] == list(range(0, 60, 6)) and {s.length for s in spans} == {6}
    assert all(before <= s.t_ns <= time.time_ns() for s in spans)
    for _ in range(100):
        for _ in range(16):
            disk.append(log, bytes(4096), log=True, index=index)
        disk.flush(10)
    assert log.stat().st_size == 60 + 1600 * 4096
    assert index.stat().st_size < log.stat().st_size / 100
    spans = parse_index(index.read_bytes())
    assert spans == sorted(spans) and len(spans) < 150


def test_log_that_is_deleted_while_it_is_written_begins_again(disk: DiskWriter, tmp_path: Path) -> None:
    log, index = tmp_path / "run/stdout.log", tmp_path / "run/stdout.index"
    disk.append(log, b"before\n", log=True, index=index)
    disk.flush(10)
    shutil.rmtree(log.parent)
    disk.append(log, b"after\n", log=True, index=index)
    disk.flush(10)
    assert log.read_bytes() == b"after\n" and disk.lost == {}
    assert [(s.offset, s.length) for s in parse_index(index.read_bytes())] == [(0, 6)]


def test_no_more_files_are_open_than_allowed(tmp_path: Path) -> None:
    files = disk_files.OpenFiles(limit=8)
    for turn in range(2):
        for i in range(64):
            os.write(files.get(tmp_path / str(i)), b"%d" % turn)
    assert len(files) == 8 and (tmp_path / "0").read_bytes() == b"01"
    files.close_all()
    assert len(files) == 0


def test_a_process_that_has_no_descriptors_left_goes_on(tmp_path: Path) -> None:
    files = disk_files.OpenFiles(limit=1000)
    for i in range(10):
        files.get(tmp_path / str(i))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    here = max(map(int, os.listdir("/proc/self/fd"))) + 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (here, hard))
    try:
        for i in range(here):
            os.write(files.get(tmp_path / f"more{i}"), b"x")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    files.close_all()
    assert (tmp_path / f"more{here - 1}").read_bytes() == b"x"


@pytest.mark.slow
def test_a_full_disk_costs_log_bytes_only_and_takes_more_when_there_is_room(tmp_path: Path) -> None:
    with tiny_file_system(tmp_path / "tiny") as folder:
        disk = DiskWriter()
        log, events = folder / "stdout.log", folder / "events.jsonl"
        for _ in range(40):
            disk.append(log, os.urandom(64 << 10), log=True, index=folder / "stdout.index")
        assert disk.flush(10)
        count, because = disk.lost[log]
        assert count == (40 << 16) - log.stat().st_size and "full" in because
        assert disk.append(events, b"x" * 100_000) and disk.write_whole(folder / "report.json", b"y" * 100_000)
        assert disk.flush(10)
        assert events.stat().st_size == 100_000 and (folder / "report.json").stat().st_size == 100_000
        kept = log.stat().st_size
        os.truncate(log, 0)
        until(lambda: disk.append(log, b"again\n", log=True) and disk.flush(5) and log.stat().st_size > 0, 5)
        assert kept > 500_000 and log.read_bytes().endswith(b"again\n")
        assert disk.close(5)


def test_what_is_kept_for_small_things_makes_way_once_and_logs_wait(tmp_path: Path, monkeypatch) -> None:
    """Where nobody says how much room there is: as if the file system were a quota."""
    monkeypatch.setattr(reserve, "_AGAIN_S", 0.0)
    with tiny_file_system(tmp_path / "tiny") as folder:
        kept = reserve.Reserve()
        (folder / "rank").mkdir()
        assert kept.stand(folder / "rank", 0) == 256 << 10
        (folder / "log").write_bytes(bytes(700 << 10))
        with pytest.raises(OSError) as full:
            (folder / "ballast").write_bytes(bytes(100 << 10))
        assert kept.make_way(full.value) and not kept.make_way(full.value)
        (folder / "report").write_bytes(bytes(100 << 10))
        for _ in range(2):
            with pytest.raises(OSError, match="No space left"):
                kept.stand(folder / "rank", 0)
        assert list((folder / "rank").iterdir()) == [], "what it tried is gone"
        (folder / "log").unlink()
        monkeypatch.setattr(reserve, "_BYTES_AGAIN", 512 << 10)
        kept.stand(folder / "rank", 0)
        assert kept.stand(folder / "rank", 0) == 0, "it stands"
        (folder / "rank").rename(folder / "moved")
        assert list((folder / "moved").iterdir()) == [], "nothing is left behind, not even after SIGKILL"
        free = os.statvfs(folder)
        kept.end()
        assert (os.statvfs(folder).f_bfree - free.f_bfree) * free.f_frsize == 256 << 10
        assert reserve.Reserve().stand(folder / "no such folder", 0) == 0, "what cannot be made stops no log"


def test_a_file_server_that_complains_at_closing_ends_nothing(tmp_path: Path, monkeypatch) -> None:
    """NFS says there that a quota is used up; the descriptor is closed all the same."""
    close = os.close

    def complain(descriptor: int) -> None:
        close(descriptor)
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    disk = DiskWriter()
    disk.append(tmp_path / "events.jsonl", b"1\n")
    assert disk.flush(10)
    with monkeypatch.context() as patched:
        patched.setattr(disk_files.os, "close", complain)
        until(lambda: disk._files.open == 0)  # unused for a second
    disk.append(tmp_path / "events.jsonl", b"2\n")
    assert disk.close(10) and (tmp_path / "events.jsonl").read_bytes() == b"1\n2\n"


@pytest.mark.slow
def test_what_is_small_waits_for_room(tmp_path: Path) -> None:
    with tiny_file_system(tmp_path / "tiny") as folder:
        (folder / "ballast").write_bytes(bytes(1 << 20))
        disk = DiskWriter()
        events = folder / "events.jsonl"
        disk.append(events, b"first\n")
        disk.write_whole(folder / "exit.json", b"{}")
        assert disk.flush(5), "a full file system answers: it says no"
        disk.append(events, b"second\n")
        (folder / "ballast").unlink()
        until(lambda: events.exists() and events.read_bytes() == b"first\nsecond\n")
        until((folder / "exit.json").exists)
        assert disk.close(5) and disk.lost == {}


def test_what_never_could_be_written_is_counted_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    disk = DiskWriter()
    disk.append(tmp_path / "file/events.jsonl", b"12345")
    disk.append(tmp_path / "file/stdout.log", b"123", log=True)
    assert disk.close(5)
    assert {p.name: count for p, (count, _) in disk.lost.items()} == {"events.jsonl": 5, "stdout.log": 3}
    assert "ot a directory" in disk.lost[tmp_path / "file/stdout.log"][1]


@pytest.mark.slow
def test_a_frozen_file_system_holds_up_nobody(tmp_path: Path) -> None:
    with freezable_file_system(tmp_path / "disk") as frozen:
        disk = DiskWriter(log_bytes=1 << 20)
        log, events = frozen.path / "stdout.log", frozen.path / "events.jsonl"
        disk.append(log, b"before\n", log=True)
        disk.append(events, b"1\n")
        assert disk.flush(10) and disk.frozen_for() == 0
        frozen.freeze()
        slowest = 0.0
        disk.append(events, b"2\n")
        until(lambda: disk.frozen_for() > 0)
        offered = taken = 0
        while disk.frozen_for() < FROZEN_S + 0.2 or offered < 3 << 20:
            began = time.monotonic()
            disk.append(events, b"3")
            if disk.room() > 0 or disk.frozen_for() > FROZEN_S:
                offered += 10_000
                taken += 10_000 * disk.append(log, bytes(10_000), log=True)
            slowest = max(slowest, time.monotonic() - began)
            time.sleep(0.001)
        assert slowest < 0.2, f"the caller waited {slowest:.3f} s"
        assert not disk.flush(0.05)
        count, because = disk.lost[log]
        assert count == offered - taken > 0 and "did not answer" in because
        frozen.thaw()
        assert disk.close(10)
        assert log.stat().st_size == len(b"before\n") + taken
        assert events.read_bytes().startswith(b"1\n2\n333")


def test_after_close_nothing_is_taken_and_nothing_raises(tmp_path: Path) -> None:
    disk = DiskWriter()
    assert disk.close(1)
    assert not disk.append(tmp_path / "x", b"1") and not disk.append(tmp_path / "x", b"1", log=True)
    assert not (tmp_path / "x").exists() and disk.flush(0.1)
