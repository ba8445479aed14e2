"""Who sets the key that a rank waits for, by the text of the scripts."""

from dataclasses import replace

import pytest

from distdbg.diagnosis.verdict import build_report
from distdbg.evidence.stacks.threads import Frame
from tests.hang_cases import evidence, made, roots, sleeps, waits
from tests.made_dump import BOOT, SCRIPT

STORE = "<torch._C._distributed_c10d.TCPStore at 0x7f00>"


def job(setting, *, waiting='store.get(f"lr/{step}")', other=None, variables=None, call="poll"):
    """Rank 1 waits for a key at line 2 of the script, rank 0 sleeps; `setting` are the lines from 4 on."""
    source = f"def read(store, step):\n    {waiting}\n\n{setting}\n"
    known = {"store": STORE, "step": "4"} if variables is None else variables
    frames = (Frame("read", SCRIPT, 2, known), Frame("<module>", SCRIPT, 9), *BOOT)
    found = evidence({0: other or sleeps(), 1: made(frames, call=call)})
    return replace(found, dump=replace(found.dump, sources={SCRIPT: source}))


@pytest.mark.parametrize("setting", [
    'if rank == 0:\n    store.set(f"lr/{step}", "1")',
    'if dist.get_rank() == 0 and step < 4:\n    store.set("lr/%d" % step, "1")',
    'if rank != 0:\n    pass\nelse:\n    store.set("lr/" + str(step), "1")',
])  # fmt: skip
def test_the_rank_that_sets_it_is_waited_for(setting):
    report = build_report(job(setting))
    assert roots(report) == [("stuck-in-python", (0,))]
    assert report.findings[0].confidence == "likely"
    assert 'store.get for the key "lr/4" (rank 0 sets it at train.py:' in report.findings[0].cause


def test_a_part_of_the_key_names_the_rank():
    report = build_report(job('store.set(f"done/{rank}/{step}", "1")', waiting='store.get(f"done/0/{step}")'))
    assert roots(report) == [("stuck-in-python", (0,))]


@pytest.mark.parametrize("setting", [
    'store.set(f"lr/{step}", "1")',  # all ranks do
    'if local_rank == 0:\n    store.set(f"lr/{step}", "1")',
    'rank = int(os.environ["LOCAL_RANK"])\nif rank == 0:\n    store.set(f"lr/{step}", "1")',
    'if rank == 1:\n    store.set(f"lr/{step}", "1")',  # it waits for itself
    'if rank == 7:\n    store.set(f"lr/{step}", "1")',  # no such rank
    'if rank % 2 == 0:\n    store.set(f"lr/{step}", "1")',
    "store.set(key, '1')",
])  # fmt: skip
def test_nobody_is_waited_for_where_the_text_does_not_say_who(setting):
    found = roots(build_report(job(setting)))
    assert ("stuck-on-io", (1,)) in found


def test_a_key_that_no_line_sets():
    found = next(f for f in build_report(job('store.set(f"rate/{step}", "1")')).findings if f.ranks == (1,))
    assert found.id == "stuck-on-io" and "set no such key, only f'rate/{step}' (train.py:4)" in found.cause


def test_what_is_not_known_of_a_key_may_be_what_another_line_sets():
    found = next(f for f in build_report(job("store.set(key, '1')", variables={})).findings if f.ranks == (1,))
    assert "such key" not in found.cause and "`f'lr/{step}'`" in found.summary


def test_a_rank_that_waits_for_the_one_that_waits_for_its_key():
    report = build_report(job('if rank == 0:\n    store.set(f"lr/{step}", "1")', other=waits(9)))
    assert [(f.id, f.ranks, f.confidence) for f in report.findings] == [("group-deadlock", (0, 1), "likely")]


@pytest.mark.parametrize(("variables", "call"), [({"store": "{}"}, "poll"), ({}, "clock_nanosleep")])
def test_other_objects_with_the_same_methods(variables, call):
    report = build_report(job('if rank == 0:\n    store.set(f"lr/{step}", "1")', variables=variables, call=call))
    assert not any("for the key" in f.summary + f.cause for f in report.findings)
