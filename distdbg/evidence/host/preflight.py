"""What nodes said before a job: the raw preflight (schema distdbg.preflight/1) as checks read it.

Every look of a node is either its facts or {"unknown": why}; a check asks for facts and finds nothing where they are
not known, and `unknowns` tells why.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from distdbg.evidence.host.preflight_form import LOOKS, MET, REDUCED, fits
from distdbg.evidence.jsonl import number
from distdbg.model import Citation, Unknown

#: why nothing is known of a node that is a finding itself
SILENT = "the node did not answer"
_NO_PROBE = "its answer is not of the form that a probe of this version gives"


@dataclass(frozen=True)
class Attempt:
    """One way to a peer. `rtt` and `offset` (the peer's clock minus ours) in seconds, where it is ok."""

    ok: bool
    address: str = ""
    because: str = ""
    resolved: tuple[str, ...] = ()
    source: str = ""
    rtt: float = 0.0
    offset: float = 0.0


@dataclass(frozen=True)
class Meeting:
    """`by_name` is None where the peer was to be reached by its addresses alone."""

    of: str
    to: str
    by_name: Attempt | None
    by_address: Attempt


@dataclass(frozen=True, eq=False)
class NodeProbe:
    """One node. `because` is empty where it has answered. Compares and hashes by identity."""

    name: str
    because: str = ""
    looks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    met: tuple[Meeting, ...] = ()
    reduced: Mapping[str, Any] | None = None

    def facts(self, look: str) -> Mapping[str, Any]:
        """Empty where nothing is known."""
        found = self.looks.get(look, {})
        return {} if "unknown" in found else found

    @property
    def citation(self) -> Citation:
        """No file: what a probe says is printed, and kept by nobody but a launch."""
        return Citation(f"probe of {self.name}")


@dataclass(frozen=True)
class Preflight:
    """`on` is local, ssh or slurm; `master` the first node; `port` the one that was asked for, 0 for any."""

    on: str
    nodes: tuple[NodeProbe, ...]
    master: str = ""
    port: int = 0
    expected: int = 1
    skipped: str = ""
    seconds: float = 0.0
    said: tuple[str, ...] = ()

    @property
    def answered(self) -> tuple[NodeProbe, ...]:
        return tuple(node for node in self.nodes if not node.because)

    @property
    def several(self) -> bool:
        return self.expected > 1

    def node(self, name: str) -> NodeProbe | None:
        return next((node for node in self.nodes if node.name == name), None)

    def each(self, look: str) -> Iterator[tuple[NodeProbe, Mapping[str, Any]]]:
        """Nodes of which this is known, with it."""
        for node in self.answered:
            if facts := node.facts(look):
                yield node, facts

    @property
    def rates(self) -> dict[tuple[str, str], tuple[float, ...]]:
        """Pair of nodes -> bytes a second each way, once for each repetition."""
        names = [node.name for node in self.nodes]
        found = {}
        for low, high in combinations(range(len(names)), 2):
            pairs = (self.nodes[low].reduced or {}).get("pairs")
            rates = pairs.get(str(high)) if isinstance(pairs, dict) else None
            if isinstance(rates, list) and rates:
                found[names[low], names[high]] = tuple(float(rate) for rate in rates)
        return found


def read_preflight(raw: Mapping[str, Any]) -> Preflight:
    """From the parsed file; what is missing or of another kind is left out."""
    nodes = raw.get("nodes")
    return Preflight(
        on=str(raw.get("on", "")),
        nodes=tuple(_node(name, said) for name, said in nodes.items()) if isinstance(nodes, dict) else (),
        master=str(raw.get("master", "")),
        port=int(number(raw, "port") or 0),
        expected=int(number(raw, "expected") or 1),
        skipped=str(raw.get("all_reduce_skipped", "")),
        seconds=number(raw, "seconds") or 0.0,
        said=tuple(map(str, raw["said"])) if isinstance(raw.get("said"), list) else (),
    )


def _node(name: str, raw: object) -> NodeProbe:
    said = raw if isinstance(raw, dict) else {"because": _NO_PROBE}
    reduced: Any = said.get("reduced")
    because, looked = str(said.get("because", "")), said.get("looked", {})
    met = said.get("met", {})
    met = met.get("met", []) if isinstance(met, dict) else None
    if not (isinstance(looked, dict) and fits(met, [MET]) and fits(reduced, REDUCED)):
        return NodeProbe(name, because or _NO_PROBE)
    looks = {look: _facts(look, facts) for look, facts in looked.items()}
    return NodeProbe(name, because, looks, tuple(_meeting(name, one) for one in met or ()), reduced)


def _facts(look: str, facts: object) -> Mapping[str, Any]:
    if isinstance(facts, dict) and ("unknown" in facts or fits(facts, LOOKS.get(look, {}))):
        return facts
    return {"unknown": _NO_PROBE}


def _meeting(of: str, raw: Mapping[str, Any]) -> Meeting:
    if "unknown" in raw:
        return Meeting(of, str(raw["to"]), None, Attempt(False, because=str(raw["unknown"])))
    by_name = _attempt(raw["by_name"]) if raw.get("by_name") else None
    return Meeting(of, str(raw["to"]), by_name, _attempt(raw["by_address"]))


def _attempt(raw: Mapping[str, Any]) -> Attempt:
    return Attempt(
        ok=bool(raw.get("ok")),
        address=str(raw.get("address", "")),
        because=str(raw.get("because", "")),
        resolved=tuple(map(str, raw.get("resolved") or ())),
        source=str(raw.get("source", "")),
        rtt=number(raw, "rtt") or 0.0,
        offset=number(raw, "offset") or 0.0,
    )


#: What is told of each look, as the table and the list of what is not known call it.
TITLES = {
    "names": "names",
    "interfaces": "interfaces",
    "disk": "disk",
    "limits": "limits",
    "ptrace": "ptrace",
    "software": "versions",
    "gpus": "GPUs",
}


def unknowns(preflight: Preflight) -> Iterator[Unknown]:
    """Everything that was looked at and could not be told, and each look that nobody had."""
    reasons: dict[tuple[str, str], list[str]] = {}
    commits = any(facts.get("git", {}).get("commit") for _, facts in preflight.each("software"))
    for node in preflight.answered:
        for look, title in TITLES.items():
            because = node.looks.get(look, {"unknown": "this probe does not look at it"}).get("unknown")
            if because:
                reasons.setdefault((title, str(because)), []).append(node.name)
        for because in _within_looks(node, commits):
            reasons.setdefault(because, []).append(node.name)
    for node in preflight.nodes:
        if node.because:
            for title in TITLES.values():
                reasons.setdefault((title, SILENT), []).append(node.name)
    for (title, because), names in reasons.items():
        yield Unknown(f"{title} of {names_of(names)}", because)
    yield from _of_all(preflight)


def _within_looks(node: NodeProbe, commits: bool) -> Iterator[tuple[str, str]]:
    git = node.facts("software").get("git", {}).get("unknown")
    if git and commits:  # outside of any repository there is nothing to know
        yield "versions (commit)", str(git)
    gpus = node.facts("gpus")
    if gpus.get("gpus") and gpus.get("xids_because"):
        yield "GPUs (Xid)", str(gpus["xids_because"])


def _of_all(preflight: Preflight) -> Iterator[Unknown]:
    apart = [
        node.name
        for node in preflight.nodes
        if node.name != preflight.master and not any(m.to == preflight.master and m.by_address.ok for m in node.met)
    ]
    if preflight.several and apart:
        yield Unknown(f"clocks of {names_of(apart)}", f"there was no way to {preflight.master}")
    if preflight.skipped and preflight.several:
        yield Unknown("all-reduce", preflight.skipped)


def names_of(names: Sequence[str]) -> str:
    """`node1`, `node1 and node2`, `node1, node2, node3 and 13 more`."""
    if len(names) <= 2:
        return " and ".join(names)
    if len(names) <= 4:
        return f"{', '.join(names[:-1])} and {names[-1]}"
    return f"{', '.join(names[:3])} and {len(names) - 3} more"
