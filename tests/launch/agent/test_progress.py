"""Samples of the ranks: when children are sampled, and which bytes count."""

import os
import time

import pytest

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


def test_what_is_read_of_a_mapped_file_moves(monkeypatch):
    """No call reads it: only the disk shows it."""
    told = []
    for read in (0, 5 << 20):
        monkeypatch.setattr(progress.Path, "read_text", lambda _path, read=read: IO.format(read=read))
        told.append(progress._bytes(1))
    assert told[1] - told[0] == 5 << 20


def test_a_process_that_may_not_be_looked_at_moves_nothing():
    assert progress._bytes(2**22 + 1) == 0
