"""What watchdogs wrote at a timeout, joined to the dump of a run: what is kept, replaced and filled."""

from distdbg.diagnosis.timeline.device import open_operations
from distdbg.diagnosis.timeline.groups import groups
from distdbg.evidence.dump import Dump
from distdbg.evidence.recorder.log import Signatures
from distdbg.evidence.recorder.reading import read_recorder
from distdbg.evidence.recorder.watchdog_dump import join_recorders
from distdbg.evidence.run import RankRecord
from tests.evidence.recorder.test_log import dump, entry
from tests.made_dump import SLEEPS, made_dump, rank_dump

RECORDS = tuple(RankRecord(r, r, 0, "a", pid=10 + r, ended=50.0 + r) for r in range(3))


def recorder(signatures, last):
    done = [entry(n, state="completed") for n in range(1, last)]
    return read_recorder(dump(*done, entry(last)), signatures)


def test_without_a_dump_the_recorders_are_one():
    s = Signatures()
    found = join_recorders(
        None, {0: (recorder(s, 5), "ranks/0"), 1: (recorder(s, 5), "ranks/1")}, RECORDS, Dump("", signatures=s)
    )
    assert (found.ranks.keys(), list(found.missing), found.reason, found.t) == ({0, 1}, [2], "watchdog", 52.0)
    opened = open_operations(found, groups(found, {}))
    assert {rank: operation.sequence for rank, operation in opened.items()} == {0: 5, 1: 5}


def test_a_dump_with_stacks_of_the_same_operations_stays_and_is_filled():
    s = Signatures()
    before = made_dump({0: rank_dump(0, SLEEPS, recorder=recorder(s, 5)), 1: rank_dump(1, SLEEPS)})
    found = join_recorders(before, {r: (recorder(s, 5), f"ranks/{r}") for r in (0, 1)}, RECORDS, Dump("", signatures=s))
    assert found.reason == before.reason and found.ranks[0] == before.ranks[0]
    assert found.ranks[1].recorder is not None and found.ranks[1].last.recorder_path == "ranks/1"
    assert found.ranks[1].last.threads


def test_a_dump_of_an_earlier_silence_is_replaced():
    s = Signatures()
    before = made_dump({r: rank_dump(r, SLEEPS, recorder=recorder(s, 5)) for r in (0, 1)})
    found = join_recorders(before, {r: (recorder(s, 9), f"ranks/{r}") for r in (0, 1)}, RECORDS, Dump("", signatures=s))
    assert found.reason == "watchdog" and not found.ranks[0].last.threads


def test_a_last_look_at_a_death_is_replaced_and_its_calls_are_kept():
    s = Signatures()
    before = made_dump({0: rank_dump(0, (), recorder=recorder(s, 5))})
    before = Dump(before.path, 1.0, "death", ranks=before.ranks, signatures=s)
    found = join_recorders(before, {0: (recorder(s, 5), "ranks/0")}, RECORDS, Dump("", signatures=s))
    assert (found.reason, found.ranks[0].calls) == ("watchdog", before.ranks[0].calls)
