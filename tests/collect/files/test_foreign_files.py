"""Files in which torch.distributed.debug has saved the answers of all ranks: each part belongs to its rank."""

import json

import pytest

from distdbg.collect.files.foreign_files import ForeignFiles
from tests.evidence.recorder.test_log import dump, entry
from tests.evidence.stacks.test_debug_server_text import make_file, make_page

TRAINS = """Current thread 0x00000003 (most recent call first):
  <no Python frame>

Thread 0x00000001 (most recent call first):
  File "/job/torch/distributed/distributed_c10d.py", line 3252 in all_reduce
  File "/job/train.py", line 13 in main
"""
SLEEPS = 'Thread 0x00000001 (most recent call first):\n  File "/job/train.py", line 5 in fetch\n'
PYSPY = 'Process 41: python train.py\nPython v3.11\n\nThread 41 (idle): "MainThread"\n    fetch (train.py:5)\n'


def read(tmp_path, **texts):
    files = []
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        files.append((tmp_path / name, name))
    foreign = ForeignFiles()
    foreign.read(files)
    return foreign.evidence()


def place(rank_dump):
    main = rank_dump.judged(rank_dump.last)
    return main.user_frames[0].line


@pytest.mark.parametrize("make", [make_file, make_page])
def test_stacks_of_all_ranks(tmp_path, make):
    evidence = read(tmp_path, stacks_20261128_105231=make("dump_traceback", [TRAINS, SLEEPS]))
    assert {rank: place(found) for rank, found in evidence.dump.ranks.items()} == {0: 13, 1: 5}
    evidence = read(tmp_path, pyspy_dump_20261128_105231=make("pyspy_dump", [500, PYSPY]))
    assert {rank: place(found) for rank, found in evidence.dump.ranks.items()} == {1: 5}
    (unknown,) = [one for one in evidence.unknown if "answer" in one.what]
    assert unknown.what == "the answers of rank 0 in pyspy_dump_20261128_105231"
    assert "status 500" in unknown.because


def test_answer_of_an_impossible_rank_is_lost_evidence(tmp_path):
    """One of rank 9999999 made a report of ten million ranks."""
    text = make_file("dump_traceback", [TRAINS, SLEEPS]).replace("Rank 1:", "Rank 200000:")
    evidence = read(tmp_path, stacks=text)
    assert set(evidence.dump.ranks) == {0} and evidence.dump.world_size == 1
    assert [one.what for one in evidence.unknown] == ["the answers of rank 200000 in stacks"]


@pytest.mark.parametrize("make", [make_file, make_page])
def test_recorders_of_all_ranks_beside_their_stacks(tmp_path, make):
    groups = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
    logs = [dump(*(entry(n) for n in range(1, last + 1)), groups=groups) for last in (4, 3)]
    texts = [json.dumps(log, indent=2) for log in logs]
    stacks = make("dump_traceback", [TRAINS, SLEEPS])
    evidence = read(tmp_path, fr=make("fr_trace_json", texts), stacks=stacks)
    ranks = evidence.dump.ranks
    assert {n: ranks[n].recorder.groups["0", "nccl"].last for n in ranks} == {0: 4, 1: 3}
    assert {n: place(ranks[n]) for n in ranks} == {0: 13, 1: 5}
    swapped = read(tmp_path, fr=make("fr_trace_json", ["[1, 2", texts[1]]))
    assert [one.what for one in swapped.unknown if "answer" in one.what] == ["the answers of rank 0 in fr"]


def test_health_checks_of_a_job_without_torchcomms_are_no_lost_evidence(tmp_path):
    """torch 2.13 writes such a file at each interval, whether the job uses torchcomms or not."""
    checks = {f"torchcomms_health_check_{n}": make_file("torchcomms_health_check", [404, 404]) for n in range(3)}
    evidence = read(tmp_path, stacks=make_file("dump_traceback", [TRAINS, SLEEPS]), **checks)
    assert set(evidence.dump.ranks) == {0, 1}
    (unknown,) = [one for one in evidence.unknown if "answer" in one.what]
    assert unknown.what == "the answers of ranks 0-1 in torchcomms_health_check_0 and 2 more files"
    assert "status 404" in unknown.because and not unknown.decisive


def test_answer_of_one_rank_is_named_by_its_file(tmp_path):
    evidence = read(tmp_path, **{"rank3.txt": TRAINS})
    assert place(evidence.dump.ranks[3]) == 13
    log = read(tmp_path, **{"rank3.txt": TRAINS + "RuntimeError: planted\n"})
    assert not log.dump.ranks and log.logs is not None
