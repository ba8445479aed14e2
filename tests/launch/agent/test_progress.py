"""Samples of the ranks: when children are sampled, and which bytes count."""

import os
import subprocess
import sys
import time

import pytest

from distdbg.collect.machine.families import Relative
from distdbg.launch.agent import progress
from distdbg.launch.agent.progress import ProgressSampler
from distdbg.launch.agent.ranks import RankProcess
from distdbg.protocol.progress import read_samples

IO = """rchar: 1000
wchar: 200
syscr: 9
syscw: 9
read_bytes: {read}
write_bytes: 0
cancelled_write_bytes: 0
"""


@pytest.mark.parametrize(("timeout_s", "closely"), [(None, False), (1800.0, False), (20.0, True)])
def test_a_rank_is_looked_at_closely_in_time_for_its_groups_timeout(tmp_path, timeout_s, closely):
    rank = RankProcess(0, 0, 1, tmp_path / "page", tmp_path / "error", pid=os.getpid(), timeout_s=timeout_s)
    rank.started_monotonic = time.monotonic() - 6
    (sample,) = read_samples(ProgressSampler(20.0).message([rank]))
    assert (sample.moved is not None) is closely


def test_what_is_read_of_a_mapped_file_moves(monkeypatch, tmp_path):
    """No call reads it: only the disk shows it."""
    monkeypatch.setattr(progress, "family", lambda pid, apart: [Relative(pid, 0, "python", "S", 0.0, 0.0, 0.0)])
    monkeypatch.setattr(progress.DrivenRanks, "below", lambda _self, pid: {})
    rank = RankProcess(0, 0, 1, tmp_path / "page", tmp_path / "error", pid=os.getpid())
    rank.started_monotonic = time.monotonic() - 60
    sizes = []
    for read in (0, 5 << 20):
        monkeypatch.setattr(progress.procfs.Path, "read_text", lambda _path, read=read, **_: IO.format(read=read))
        sizes.append(read_samples(ProgressSampler(20.0).message([rank]))[0].moved)
    assert sizes[1] - sizes[0] == 5 << 20


def test_the_ranks_that_a_launcher_has_started_are_sampled_in_its_place(monkeypatch, tmp_path):
    """Until one is found, and after the last has ended, the launcher itself is."""
    rank = RankProcess(3, 0, 1, tmp_path / "page", tmp_path / "error", pid=os.getpid())
    rank.started_monotonic = time.monotonic() - 60
    families = []
    monkeypatch.setattr(progress, "family", lambda pid, apart: families.append((pid, sorted(apart))) or [])
    sampler = ProgressSampler(20.0)
    found = {}
    monkeypatch.setattr(sampler._driven, "below", lambda pid: found)
    assert [s.key for s in read_samples(sampler.message([rank]))] == [(3, None)]
    found |= {0: 11, 1: 12}
    assert [s.key for s in read_samples(sampler.message([rank]))] == [(3, 0), (3, 1)]
    assert families[-2:] == [(11, [11, 12]), (12, [11, 12])]
    assert read_samples(sampler.message([rank])) == [], "nothing has changed"
    del found[0]
    assert [s.key for s in read_samples(sampler.message([rank]))] == [(3, 1)]
    found.clear()
    assert [s.key for s in read_samples(sampler.message([rank]))] == [(3, None)]


@pytest.mark.parametrize(
    ("code", "asleep"),
    [("time.sleep(60)", True), ("[time.sleep(0.05) for _ in iter(int, 1)]", False), ("sys.stdin.read()", False)],
)
def test_one_sleep_is_told_from_a_thread_that_polls(code, asleep):
    command = [sys.executable, "-c", f"import sys, time; print(flush=True); {code}"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    sampler, looks = ProgressSampler(20.0), []
    try:
        process.stdout.readline()
        for _ in range(8):
            looks.append(sampler._asleep(process.pid))
            time.sleep(0.3)
        assert looks[-1] is asleep
    finally:
        process.kill()
        process.communicate()
