"""Recorder dumps with entries, ranks and names that cannot be right: used, refused or counted, never dropped."""

import json
import time

import pytest

from distdbg.collect.runs.explaining import load
from distdbg.diagnosis.verdict import build_report
from distdbg.errors import EvidenceUnreadable
from distdbg.evidence.recorder.log import Signatures
from distdbg.evidence.recorder.reading import read_recorder
from distdbg.model import MOST_RANKS
from tests.evidence.recorder.test_log import dump, entry


def groups(ranks):
    return {"0": {"name": "0", "desc": "default_pg", "ranks": ranks}}


def written(folder, ranks, *, entries=None, groups_entry=None, name="nccl_trace_rank_{}"):
    """A healthy set; `entries` of rank 0 are others, and so is what all tell of the group."""
    good = [entry(n, state="completed", retired=True) for n in (1, 2)]
    groups_entry = groups(str(list(range(ranks)))) if groups_entry is None else groups_entry
    for rank in range(ranks):
        own = entries if entries is not None and rank == 0 else good
        (folder / name.format(rank)).write_text(json.dumps(dump(*own, groups=groups_entry)))
    return folder


def losses(entries, groups_entry=None):
    return list(read_recorder(dump(*entries, groups=groups_entry or {}), Signatures()).losses())


@pytest.mark.parametrize(
    ("wrong", "because"),
    [
        (None, "it is no object"),
        ({"state": "scheduled"}, "it has no 'process_group'"),
        (entry(-1), "its time or its sequence number"),
        (entry(2**70), "its time or its sequence number"),
        (entry(True), "its time or its sequence number"),
        (entry(3, time_created_ns=float("nan")), "its time or its sequence number"),
        (entry(3, input_sizes=7), "its fields are not of the form"),
        (entry(3, "nccl:send 0->999999999", is_p2p=True), "it names peer 999999999"),
    ],
)
def test_an_entry_that_cannot_be_used_is_counted(wrong, because):
    ((what, why),) = losses([entry(1), wrong, wrong, entry(2)])
    assert what == "2 of 4 entries"
    assert why.startswith(because)


def test_reasons_are_bounded():
    wrong = [{"process_group": ["0", ""], "time_created_ns": 1, "collective_seq_id": 1}] + [
        {k: v for k, v in entry(1).items() if k != gone} for gone in entry(1)
    ]
    found = losses([*wrong, *({f"k{n}": 1} for n in range(50))])
    assert len(found) <= 9
    assert sum(int(what.split()[0]) for what, _ in found) >= 50


@pytest.mark.parametrize(
    ("ranks", "because"),
    [
        ("[0, 0, 1]", "twice"),
        (f"[0, {MOST_RANKS}]", "no job has more"),
        ("[0-99999999]", "no job has more"),
        ("[-1, 0]", "neither a rank|no list of ranks"),
        ("[1, ", "no list of ranks"),
        ("[" + ",".join(map(str, range(MOST_RANKS + 1))) + "]", "it lists 200,001 ranks"),
    ],
)
def test_a_list_of_ranks_that_cannot_be_right(ranks, because):
    log = read_recorder(dump(entry(1), groups=groups(ranks)), Signatures())
    assert log.groups["0", "nccl"].ranks == ()
    assert any(word in log.unused_ranks["0"] for word in because.split("|"))


def test_an_empty_list_of_ranks_is_none_and_nothing_is_wrong_with_it():
    """Torch writes one for a group that has only a backend of another kind."""
    log = read_recorder(dump(entry(1), groups=groups("[]")), Signatures())
    assert (log.groups["0", "nccl"].ranks, log.unused_ranks) == ((), {})


def test_two_million_ranks_take_neither_time_nor_memory(tmp_path):
    many = "[" + ", ".join(map(str, range(2_000_000))) + "]"
    written(tmp_path, 2, groups_entry=groups(many))
    begun = time.process_time()
    evidence = load([tmp_path])
    assert len(evidence.ranks) == 2
    assert time.process_time() - begun < 5
    assert any("2,000,000 ranks" in u.because for u in evidence.unknown)


def test_what_is_lost_is_in_the_report_and_decides_the_exit_code(tmp_path):
    written(tmp_path, 2, entries=[entry(1, state="completed"), {"x": 1}, None])
    report = build_report(load([tmp_path]))
    incomplete = [u.what for u in report.unknown if "entries" in u.what]
    assert [what.removesuffix(" entries")[-6:] for what in incomplete] == ["1 of 3", "1 of 3"]
    assert all("rank 0" in what for what in incomplete)
    assert report.undecided


def test_a_healthy_set_decides(tmp_path):
    assert not build_report(load([written(tmp_path, 2)])).undecided


def test_a_set_without_one_usable_entry_is_unreadable(tmp_path):
    written(tmp_path, 1, entries=[{"x": 1}] * 3)
    with pytest.raises(EvidenceUnreadable, match="3 of 3 entries cannot be used: it has no 'process_group'"):
        load([tmp_path])


def test_a_rank_below_zero_is_nobodys(tmp_path):
    written(tmp_path, 1, name="nccl_trace_rank_-{}1")
    with pytest.raises(EvidenceUnreadable, match="does not end in a rank"):
        load([tmp_path])


def test_a_rank_that_its_own_group_does_not_have(tmp_path):
    written(tmp_path, 2)
    (tmp_path / "nccl_trace_rank_7").write_bytes((tmp_path / "nccl_trace_rank_1").read_bytes())
    evidence = load([tmp_path])
    assert [rank.rank for rank in evidence.ranks] == [0, 1]
    (lost,) = [u for u in evidence.unknown if u.what.endswith("rank_7")]
    assert "default group are 0-1" in lost.because
    assert lost.decisive
