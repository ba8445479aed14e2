"""Slurm's words on memory: which lines they are, and which node they are about."""

import pytest

from distdbg.evidence.logs.slurm import failed_nodes, memory_lines, said_of

NEW = "slurmstepd: error: Detected 1 oom_kill event in StepId=4711.0. Some of the step tasks have been OOM Killed."
OLD = (
    "slurmstepd: error: Detected 2 oom-kill event(s) in step 4711.0 cgroup. Some of your processes may have been killed"
)
OF_NODE = (
    "slurmstepd-node1: error: Detected 3 oom_kill events in StepId=4711.0. Some of the step tasks have been OOM Killed."
)
KILLED = "slurmstepd: error: StepId=4711.0 exceeded memory limit (6526939136 > 4294967296), being killed"
TASK = "srun: error: node1: task 1: Out Of Memory"


@pytest.mark.parametrize("line", [NEW, OLD, OF_NODE, KILLED, TASK, "slurmstepd: error: Exceeded job memory limit"])
def test_these_are_about_memory(line):
    assert memory_lines(f"srun: job 4711 queued\n{line}\n{line}\n") == [line, line], "of two nodes"


@pytest.mark.parametrize(
    "line",
    [
        "slurmstepd: error: Exceeded step memory limit at some point.",
        "slurmstepd: error: StepId=4711.0 hit memory limit at least once during execution. This may or may not",
        "slurmstepd: error: *** STEP 4711.0 ON node1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***",
        "srun: error: node1: task 0: Exited with exit code 1",
        f"my script says: {NEW}",
    ],
)
def test_these_are_not(line):
    assert memory_lines(line) == []


@pytest.mark.parametrize(
    ("lines", "node", "kills", "named"),
    [
        ([NEW], 0, 1, False),
        ([NEW, OLD], 1, 3, False),
        ([NEW, TASK], 1, 1, True),
        ([NEW, NEW, TASK], 0, 2, False),
        ([NEW, TASK], 0, None, None),  # srun says which node it was
        ([NEW, OLD, TASK], 0, 3, False),  # and one more that it does not name
        ([OF_NODE], 1, 3, True),
        ([OF_NODE], 0, None, None),
        (["srun: error: node[0-1]: tasks 0-1: Out Of Memory"], 1, 1, True),
        (["srun: error: node1: tasks 9-1: Out Of Memory"], 1, None, None),
    ],
)
def test_a_line_is_of_the_node_that_it_names(lines, node, kills, named):
    said = said_of(lines, node, f"node{node}.cluster", nodes=2)
    assert (said and (said.kills, said.named)) == (kills and (kills, named))


def test_a_job_of_one_node_has_no_other_that_it_could_be():
    assert said_of([KILLED], 0, "node0", nodes=1).named


def test_nodes_that_failed():
    words = "srun: error: Node failure on "
    assert failed_nodes(f"{words}node2\n{words}n-7.cluster\n{words}node2\n") == ["node2", "n-7.cluster"]
    assert failed_nodes(f"[rank0]: {words}node2\nsrun: got SIGCONT") == []
