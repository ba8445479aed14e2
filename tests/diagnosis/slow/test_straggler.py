"""What is said of a rank that the others wait for: how late, and how well the clocks of its nodes are known."""

from dataclasses import replace

import pytest

from distdbg.diagnosis.slow.straggler import straggler
from distdbg.evidence.host.gpus import RankLook
from distdbg.evidence.recorder.log import RecorderLog
from distdbg.evidence.run import NodeRecord, RankRecord, RunEvidence
from tests.diagnosis.timeline.test_arrivals import MS, blocking_steps, group
from tests.made_dump import BOOT, SCRIPT, WAITS, T, frame, made_dump, rank_dump

#: The second node's clock is ahead, by far more than rank 3 is late in every other step.
AHEAD = 5000 * MS


def found(hosts):
    slow = blocking_steps(lambda step, rank: 400 * MS if rank == 3 and step % 2 else 0)
    times = {rank: [t + AHEAD * (hosts[rank] == "node2") for t in of] for rank, of in slow.items()}
    logs = group(times).logs
    ranks = {n: rank_dump(n, WAITS, recorder=RecorderLog({("0", ""): logs[n]}), page={"quiet_s": 0.1}) for n in hosts}
    records = tuple(RankRecord(n, n % 2, n // 2, host) for n, host in hosts.items())
    (finding,) = straggler.run(RunEvidence({}, 0, records, (), dump=made_dump(ranks)))
    return finding


@pytest.mark.parametrize(
    ("second", "confidence", "says"),
    [("node2", "likely", "Clocks of the nodes are known to 101.0 ms."), ("node1", "certain", "")],
    ids=["two nodes", "one node"],
)
def test_how_late_and_how_well_that_is_known(second, confidence, says):
    """Two nodes' clocks are compared by who must have come before whom: to the 101 ms of one step without rank 3."""
    finding = found({0: "node1", 1: "node1", 2: second, 3: second})
    assert (finding.ranks, finding.confidence) == ((3,), confidence)
    assert finding.ranks == (3,)
    assert "400.0 ms in 25 of 50 collectives of the default group" in finding.summary
    assert finding.cause == says


ALIKE = {"windows": 31, "computing": 500, "backward": 500}
LATE_IN_PHASES = ({"windows": 31, "computing": 900}, {"windows": 31, "computing": 100, "backward": 900})


@pytest.mark.parametrize(
    ("after_s", "phases", "ranks"),
    [
        (60.0, (ALIKE, ALIKE), [(0,)]),
        (600.0, (ALIKE, ALIKE), []),
        (600.0, ({}, {}), []),
        (600.0, LATE_IN_PHASES, [(0,)]),
    ],
    ids=["dump of a third", "run went on without it", "phases unknown", "phases agree"],
)
def test_dump_of_the_start_needs_the_phases_of_the_whole_run(after_s, phases, ranks):
    slow = blocking_steps(lambda _step, rank: 400 * MS if rank == 0 else 0, ranks=2)
    times = {rank: [t - 10**18 + int((T - 40) * 1e9) for t in of] for rank, of in slow.items()}
    logs = group(times).logs
    dumps = {n: rank_dump(n, WAITS, recorder=RecorderLog({("0", ""): logs[n]}), page={"quiet_s": 0.1}) for n in times}
    records = tuple(
        RankRecord(n, n, 0, "node1", initialised=True, ended=T + after_s, phases=of | {"late_us": 0 if n else 90_000})
        for n, of in enumerate(phases)
    )
    assert [f.ranks for f in straggler.run(RunEvidence({}, 0, records, (), dump=made_dump(dumps)))] == ranks


@pytest.mark.parametrize(("initialised", "ranks"), [(True, [(0,)]), (False, [])], ids=["one job", "independent runs"])
def test_nobody_waits_where_there_is_no_process_group(initialised, ranks):
    phases = ({"windows": 31, "computing": 1000}, *({"windows": 31, "data": 1000} for _ in range(2)))
    records = [RankRecord(n, n, 0, "node1", phases=of, initialised=initialised) for n, of in enumerate(phases)]
    assert [f.ranks for f in straggler.run(RunEvidence({}, 0, tuple(records), ()))] == ranks


def by_phase(phase, source, *, innermost=None, gpu=1 << 30):
    """Rank 0 is longer in `phase`, and its samples stand at `source`; the others are in their backward meanwhile."""
    shares = ({"windows": 31, phase: 800, "backward": 200}, *({"windows": 31, "backward": 1000} for _ in range(3)))
    records = [RankRecord(n, n, 0, "node1", phases=of, initialised=True) for n, of in enumerate(shares)]
    frames = [["/home/me/train.py", 40, "main"]]
    frames = [["/env/lib/python3.11/site-packages/lightning/x.py", 9, innermost], *frames] if innermost else frames
    late = {"event": "late", "rank": 0, "phase": phase, "for_ms": 80.0, "usual_ms": 1.0, "frames": frames,
            "source": source}  # fmt: skip
    looks = dict.fromkeys(range(4), (RankLook(0.0, 9, gpu_used=gpu),))
    node = NodeRecord(0, "node1", ((1, late),) if source else (), courses=looks)
    return [f.confidence for f in straggler.run(RunEvidence({}, 0, tuple(records), (node,)))]


@pytest.mark.parametrize(
    ("phase", "source", "innermost", "gpu", "found"),
    [
        ("other", "bar.set_postfix(loss=loss.item())", None, 1, []),
        ("other", "trainer.fit(model)", "to_item", 1, []),
        ("other", "ids = tokenize(text)", None, 1, ["likely"]),
        ("other", "trainer.fit(model)", "log_to_disk", 1, ["likely"]),
        ("other", "", None, 1, ["possible"]),
        ("other", "print(loss.item())", None, None, ["likely"]),
        ("data", "print(loss.item())", None, 1, ["likely"]),
        ("data", "", None, 1, ["likely"]),
    ],
)
def test_who_alone_reads_a_value_waits_for_its_gpu_and_nobody_for_it(phase, source, innermost, gpu, found):
    """A progress bar on rank 0: its host waits for the GPU in each step, those of the others run ahead of theirs."""
    assert by_phase(phase, source, innermost=innermost, gpu=gpu) == found


@pytest.mark.parametrize(
    ("readers", "comm", "found"),
    [({0}, "nccl", []), ({0}, "gloo", [(0,)]), ({0, 1}, "nccl", [(0,)]), (set(), "nccl", [(0,)])],
    ids=["it alone", "no GPU", "others, too", "nobody"],
)
def test_a_host_that_queues_its_collectives_late_may_only_read_values(readers, comm, found):
    logs = group(blocking_steps(lambda _, rank: 300 * MS if rank == 0 else rank * MS)).logs
    reads = (frame("<module>", line=2), *BOOT)
    ranks = {
        n: rank_dump(
            n,
            reads if n in readers else WAITS,
            recorder=RecorderLog({("0", comm): replace(logs[n], comm=comm)}),
            page={"quiet_s": 0.1},
        )
        for n in range(4)
    }  # fmt: skip
    dump = replace(made_dump(ranks), sources={SCRIPT: "import x\nprint(loss.item())\n"})
    records = tuple(RankRecord(n, n, 0, "node1") for n in range(4))
    assert [f.ranks for f in straggler.run(RunEvidence({}, 0, records, (), dump=dump))] == found
