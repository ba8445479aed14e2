"""What is said of a rank that the others wait for: how late, and how well the clocks of its nodes are known."""

import pytest

from distdbg.checks import straggler
from distdbg.evidence.recorder import RecorderLog
from distdbg.evidence.run import RankRecord, RunEvidence
from tests.evidence.test_arrivals import MS, blocking_steps, group
from tests.made_dump import WAITS, made_dump, rank_dump

#: The second node's clock is ahead, by far more than rank 3 is late in every other step.
AHEAD = 5000 * MS


def found(hosts):
    slow = blocking_steps(lambda step, rank: 400 * MS if rank == 3 and step % 2 else 0)
    times = {rank: [t + AHEAD * (hosts[rank] == "node2") for t in of] for rank, of in slow.items()}
    logs = group(times).logs
    ranks = {n: rank_dump(n, WAITS, recorder=RecorderLog({"0": logs[n]}), page={"quiet_s": 0.1}) for n in hosts}
    records = tuple(RankRecord(n, n % 2, n // 2, host) for n, host in hosts.items())
    (finding,) = straggler.check(RunEvidence({}, 0, records, (), dump=made_dump(ranks)))
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
    assert finding.summary.startswith("rank 3 is last by 400.0 ms in 30 of 60 collectives of the default group")
    assert finding.cause == says


@pytest.mark.parametrize(("initialised", "ranks"), [(True, [(0,)]), (False, [])], ids=["one job", "independent runs"])
def test_nobody_waits_where_there_is_no_process_group(initialised, ranks):
    phases = ({"windows": 31, "computing": 1000}, *({"windows": 31, "data": 1000} for _ in range(2)))
    records = [RankRecord(n, n, 0, "node1", phases=of, initialised=initialised) for n, of in enumerate(phases)]
    assert [f.ranks for f in straggler.check(RunEvidence({}, 0, tuple(records), ()))] == ranks
