"""What Slurm says on a step's standard error of nodes that failed, and of processes that were killed for memory.

    srun: error: Node failure on node2

Of what was killed it names no process.

    slurmstepd: error: Detected 1 oom_kill event in StepId=4711.0. Some of the step tasks have been OOM Killed.
    slurmstepd: error: Detected 1 oom-kill event(s) in step 4711.0 cgroup.                      (before Slurm 22)
    slurmstepd: error: StepId=4711.0 exceeded memory limit (12 > 10), being killed
    srun: error: node1: task 0: Out Of Memory

`Exceeded step memory limit at some point` is left out: files that were read count there, and nothing need have died.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from distdbg.model import unfold_ranks

_STEP = re.compile(
    r"^slurmstepd(?:-(?P<host>[\w.\-]+))?: error: .{0,80}?(?:Detected (?P<count>\d{1,6}) oom[-_]kill event|"
    r"exceeded memory limit \(|Exceeded (?:job|step) memory limit(?! at some point))"
)
_TASK = re.compile(r"^srun: error: \S+: tasks? (?P<tasks>[\d,\-]{1,4000}): Out Of Memory")
_FAILED = re.compile(r"^srun: error: Node failure on (?P<node>[\w.\-]+)\s*$", re.MULTILINE)
_MOST_LINES, _MOST_LINE = 200, 500
#: Slurm itself ends all of a step that exceeds its limit.
_ALL = 1 << 20


@dataclass(frozen=True)
class SlurmSaid:
    """Of one node: the line, and how many processes it may be about. `named` is False where it names no node."""

    text: str
    kills: int
    named: bool


def failed_nodes(text: str) -> list[str]:
    """Nodes that Slurm has taken for failed, whereupon it ends a step, by their names in Slurm."""
    return list(dict.fromkeys(match["node"] for match in islice(_FAILED.finditer(text), _MOST_LINES)))


def memory_lines(text: str) -> list[str]:
    """Those that are about memory, in order: two nodes may say the same."""
    found = (line[:_MOST_LINE].strip() for line in text.splitlines() if _STEP.match(line) or _TASK.match(line))
    return list(islice(found, _MOST_LINES))


def said_of(lines: Sequence[str], node_rank: int, host: str, nodes: int) -> SlurmSaid | None:
    """What is about this node, or may be: a step has one task on each, in the order of their ranks.

    As many lines of slurmstepd's as srun names nodes are those nodes' own.
    """
    steps = [(match, line) for line in lines if (match := _STEP.match(line))]
    for match, line in steps:
        if match["host"] and match["host"].partition(".")[0] == host.partition(".")[0]:
            return SlurmSaid(line, _kills(match), named=True)
    anyones = [(match, line) for match, line in steps if not match["host"]]
    counts = [_kills(match) for match, _ in anyones]
    named = {task: line for line in lines if (match := _TASK.match(line)) for task in _tasks(match["tasks"])}
    if node_rank in named:
        return SlurmSaid(named[node_rank], min(counts, default=1), named=True)
    if not anyones or (named and len(anyones) <= len(named)):
        return None
    return SlurmSaid(anyones[0][1], sum(counts), named=nodes == 1)


def _kills(match: re.Match[str]) -> int:
    return int(match["count"]) if match["count"] else _ALL


def _tasks(text: str) -> tuple[int, ...]:
    try:
        return unfold_ranks(text)
    except ValueError:
        return ()
