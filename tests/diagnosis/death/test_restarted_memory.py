"""Each attempt is judged by the kernel's messages and the counters of its own time."""

import json

import pytest

from tests.made_run import T0, MadeRun

OOM = "Memory cgroup out of memory: Killed process {pid} (python) anon-rss:900000kB"


def restarted(folder, *, own_bounds=True, messages_in_last=()):
    """Rank 1 of attempt 1 is killed for memory, rank 3 of attempt 2 by somebody: one agent a node."""
    first = MadeRun(folder, nodes=1)
    first.exits(1, -9, t=10)
    first.rest(-15, t=10.5, asked=10.2)
    if own_bounds:
        first.event(0, "kernel", t=11, messages=[[OOM.format(pid=1001), T0 + 9.9]], because="")
        first.event(0, "cgroup", t=11, when="after", oom_kill=1, limit=8 << 30)
    second = MadeRun(folder, nodes=1, attempt=2, started=T0 + 11.2)
    events = second.node_files[0].events
    lines = [json.loads(line) for line in events.read_text().splitlines()]
    lines = [line for line in lines if line["event"] not in ("agent-started", "cgroup")]
    events.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    if own_bounds:
        second.event(0, "cgroup", t=0, when="before", oom_kill=1, limit=8 << 30)
    for rank in range(4):
        second.event(0, "rank-started", t=0.2, rank=rank, pid=2000 + rank, attempt=2)
    second.exits(3, -9, t=10, pid=2003)
    for rank in range(3):
        second.exits(rank, -15, t=10.5, asked=10.2, pid=2000 + rank)
    return second.closes(oom_after=1, kernel=list(messages_in_last))


@pytest.mark.parametrize(
    ("attempt", "root"), [(1, ("host-oom", (1,), "certain")), (2, ("rank-killed", (3,), "certain"))]
)
def test_each_attempt_has_its_own_kill(tmp_path, attempt, root):
    finding = restarted(tmp_path).report(attempt).findings[0]
    assert (finding.id, finding.ranks, finding.confidence) == root
    assert finding.evidence[0].path.startswith(f"attempts/{attempt}/")


def test_older_agents_messages_of_attempt_1_say_nothing_of_attempt_2(tmp_path):
    """They wrote all of them, and the counters, at the end of the last attempt."""
    run = restarted(tmp_path, own_bounds=False, messages_in_last=[[OOM.format(pid=2003), T0 + 9.9]])
    assert run.evidence(2).nodes[0].kernel == ()
    assert run.evidence(1).nodes[0].kernel_unknown_because == "the agent did not read them in time"
