"""There is no room where a job writes: the folder of its runs, /dev/shm, the temporary folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from distdbg.diagnosis.nodes._nodes import of_nodes, size
from distdbg.evidence.host.preflight import NodeProbe, names_of
from distdbg.evidence.run import RunEvidence
from distdbg.findings import entries
from distdbg.model import Finding, Severity

DOCS = entries("disk-low", "folder-not-shared")
_MB, _GB = 10**6, 10**9
#: of -> (an error below, a warning below), in bytes. Docker's /dev/shm has 64 MiB.
_ROOM = {
    "runs": (100 * _MB, _GB),
    "shared memory": (16 * _MB, 128 * _MB),
    "temporary files": (16 * _MB, 200 * _MB),
}
_INODES = (20, 1000)


def check(evidence: RunEvidence) -> Iterator[Finding]:
    if evidence.preflight is None:
        return
    low: dict[tuple[str, Severity, str], list[NodeProbe]] = {}
    apart: list[NodeProbe] = []
    for node, facts in evidence.preflight.each("disk"):
        for place in facts.get("places", ()):
            for severity, words in _judged(place):
                low.setdefault((str(place["path"]), severity, words), []).append(node)
        if facts.get("sees_token") is False:
            apart.append(node)
    for (path, severity, words), nodes in low.items():
        summary = f"{path} on {names_of([node.name for node in nodes])} {words}"
        yield of_nodes(DOCS[0], nodes, summary, severity=severity)
    if apart:
        verb = "does" if len(apart) == 1 else "do"
        words = f"{names_of([node.name for node in apart])} {verb} not see the folder that runs go to"
        yield of_nodes(DOCS[1], apart, words)


def _judged(place: Mapping[str, Any]) -> Iterator[tuple[Severity, str]]:
    if place.get("because"):
        yield "error", f"cannot be used: {place['because']}"
        return
    of = str(place["of"])
    error, warning = _ROOM[of]
    free, inodes = int(place["free"]), int(place["inodes_free"])
    if free < warning:
        words = f"has {size(free)} left of {size(int(place['total']))} ({of})"
        yield ("error" if free < error else "warning"), words
    if 0 <= inodes < _INODES[1] and place["inodes"]:  # some file systems count none
        words = f"has {inodes} inodes left of {place['inodes']} ({of})"
        yield ("error" if inodes < _INODES[0] else "warning"), words
