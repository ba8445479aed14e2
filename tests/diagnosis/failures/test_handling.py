from dataclasses import replace

from distdbg.diagnosis.failures.handling import handling
from distdbg.diagnosis.hang.stuck import stuck
from distdbg.evidence.records import RankTexts, rank_record
from tests.hang_cases import evidence, sleeps, waits
from tests.made_dump import SCRIPT, T


def facts(*answers, at=T, question="dump"):
    """What each answer's main thread was handling, a second apart; None for nothing."""
    return [
        (number, {"op": "exceptions", "id": question, "t": at + number, "threads": [] if kind is None else [
            {"type": kind, "message": "the shard is torn\nin two", "thread": "MainThread", "where": [SCRIPT, 14, "f"]},
        ]})
        for number, kind in enumerate(answers, 1)
    ]  # fmt: skip


def record(*answers, **more):
    return rank_record(0, None, {}, RankTexts("attempts/1/ranks/00000", facts=facts(*answers, **more)))


def hung(*answers, **more):
    """Rank 0 sleeps, and answered so when the dump was taken."""
    had = evidence({0: sleeps(8), 1: waits(9)})
    return replace(had, ranks=(replace(had.ranks[0], handling=record(*answers, **more).handling), *had.ranks[1:]))


def test_the_newest_answer_counts():
    assert record("OSError", "ValueError").handling.type == "ValueError"
    assert record("ValueError", None).handling is None


def test_what_a_dump_found_is_no_failure_and_what_a_death_found_is_no_dumps():
    assert record("ValueError").exceptions == ()
    assert record("ValueError", question="death").handling is None


def test_the_end_of_an_iterator_and_an_older_dumps_answer_say_nothing():
    assert 0 in handling(hung("ValueError"), [0, 1])
    assert handling(hung("StopIteration"), [0, 1]) == {}
    assert handling(hung("_queue.Empty"), [0, 1]) == {}
    assert handling(hung("ValueError", at=T - 60), [0, 1]) == {}


def test_a_dump_that_took_long_is_still_the_one_that_asked():
    slow = hung("ValueError")
    assert 0 in handling(replace(slow, dump=replace(slow.dump, t=T + 60)), [0])


def test_a_rank_that_others_wait_for_says_what_it_is_handling():
    (finding,) = stuck.run(hung("ValueError"))
    assert "Rank 0 is still handling ValueError: the shard is torn (train.py:14)." in finding.cause
