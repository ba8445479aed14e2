"""Read the raw preflight (schema distdbg.preflight/1) into what each node reported before a job.

Every look of a node is either its facts or {"unknown": why}; a check asks for facts and finds nothing where they are
not known, and `unknowns` says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from distdbg.evidence.jsonl import number
from distdbg.model import Citation, Unknown
from distdbg.protocol.preflight import LOOKS, MET, REDUCED, fits

#: why nothing is known of a node that is a finding itself
SILENT = "the node did not answer"
_NO_PROBE = "its answer is not of the form that a probe of this version gives"


@dataclass(frozen=True)
class ProbeAttempt:
    """One way to a peer. `rtt` and `offset` (the peer's clock minus ours) in seconds, where it is ok."""

    ok: bool
    address: str = ""
    because: str = ""
    resolved: tuple[str, ...] = ()
    source: str = ""
    rtt: float = 0.0
    offset: float = 0.0
    #: another node that has this address, where one answered
    answered_by: str = ""


@dataclass(frozen=True)
class PeerMeeting:
    """`by_name` is None where the peer was to be reached by its addresses alone."""

    of: str
    to: str
    by_name: ProbeAttempt | None
    by_address: ProbeAttempt


@dataclass(frozen=True, eq=False)
class NodeProbe:
    """One node. `because` is empty where it has answered. Compares and hashes by identity."""

    name: str
    because: str = ""
    looks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    met: tuple[PeerMeeting, ...] = ()
    reduced: Mapping[str, Any] | None = None

    def facts(self, look: str) -> Mapping[str, Any]:
        """Empty where nothing is known."""
        found = self.looks.get(look, {})
        return {} if "unknown" in found else found

    @property
    def citation(self) -> Citation:
        """No file: a probe prints its results, and only a launch keeps them."""
        return Citation(f"probe of {self.name}")


@dataclass(frozen=True)
class Preflight:
    """`on` names the backend; `one_machine`: all nodes are one, which has no links; `master` is the first node;
    `port` the one that was asked for, 0 for any."""

    on: str
    nodes: tuple[NodeProbe, ...]
    master: str = ""
    port: int = 0
    expected: int = 1
    skipped: str = ""
    seconds: float = 0.0
    said: tuple[str, ...] = ()
    one_machine: bool = False
    #: why not all was looked at; empty if it was
    incomplete: str = ""

    @property
    def answered(self) -> tuple[NodeProbe, ...]:
        return tuple(node for node in self.nodes if not node.because)

    @property
    def several(self) -> bool:
        return self.expected > 1

    def node(self, name: str) -> NodeProbe | None:
        return next((node for node in self.nodes if node.name == name), None)

    def each(self, look: str) -> Iterator[tuple[NodeProbe, Mapping[str, Any]]]:
        """Nodes with these facts, and the facts."""
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
    """Read the parsed file; what is missing or of another kind is left out."""
    nodes = raw.get("nodes")
    return Preflight(
        on=str(raw.get("on", "")),
        one_machine=bool(raw.get("one_machine", raw.get("on") == "local")),  # records of before name the backend alone
        nodes=tuple(_node(name, said) for name, said in nodes.items()) if isinstance(nodes, dict) else (),
        master=str(raw.get("master", "")),
        port=int(number(raw, "port") or 0),
        expected=int(number(raw, "expected") or 1),
        skipped=str(raw.get("all_reduce_skipped", "")),
        seconds=number(raw, "seconds") or 0.0,
        incomplete=str(raw.get("incomplete", "")),
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


def _meeting(of: str, raw: Mapping[str, Any]) -> PeerMeeting:
    if "unknown" in raw:
        return PeerMeeting(of, str(raw["to"]), None, ProbeAttempt(False, because=str(raw["unknown"])))
    by_name = _attempt(raw["by_name"]) if raw.get("by_name") else None
    return PeerMeeting(of, str(raw["to"]), by_name, _attempt(raw["by_address"]))


def _attempt(raw: Mapping[str, Any]) -> ProbeAttempt:
    because = str(raw.get("because", ""))
    name, answers, _ = because.partition(" answers there")  # a probe of 0.1 says it in words alone
    return ProbeAttempt(
        ok=bool(raw.get("ok")),
        address=str(raw.get("address", "")),
        because=because,
        answered_by=str(raw.get("answered_by", name if answers else "")),
        resolved=tuple(map(str, raw.get("resolved") or ())),
        source=str(raw.get("source", "")),
        rtt=number(raw, "rtt") or 0.0,
        offset=number(raw, "offset") or 0.0,
    )


#: The name of each look in the table and in the list of what is not known.
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
    """Every look that gave no answer, and each look that no node made."""
    reasons: dict[tuple[str, str], list[NodeProbe]] = {}
    commits = any(facts.get("git", {}).get("commit") for _, facts in preflight.each("software"))
    for node in preflight.answered:
        for look, title in TITLES.items():
            because = node.looks.get(look, {"unknown": "this probe does not look at it"}).get("unknown")
            if because:
                reasons.setdefault((title, str(because)), []).append(node)
        git = node.facts("software").get("git", {}).get("unknown")
        if git and commits:  # outside of any repository there is nothing to know
            reasons.setdefault(("versions (commit)", str(git)), []).append(node)
        gpus = node.facts("gpus")
        if gpus.get("gpus") and gpus.get("xids_because"):
            reasons.setdefault(("GPUs (Xid)", str(gpus["xids_because"])), []).append(node)
    for node in preflight.nodes:
        if node.because:
            why = preflight.incomplete if node.because == preflight.incomplete else SILENT
            for title in TITLES.values():
                reasons.setdefault((title, why), []).append(node)
    for (title, because), nodes in reasons.items():
        row, names = title.partition(" (")[0], tuple(node.name for node in nodes)
        yield Unknown(f"{title} of {names_of(nodes)}", because, row=row, nodes=names)
    others = [node for node in preflight.nodes if node.name != preflight.master]
    apart = [node for node in others if not any(m.to == preflight.master and m.by_address.ok for m in node.met)]
    if preflight.several and apart:
        because = preflight.incomplete or f"there was no way to {preflight.master}"
        yield Unknown(f"clocks of {names_of(apart)}", because, row="clocks", nodes=tuple(n.name for n in apart))
    if preflight.incomplete:
        yield Unknown("what the nodes have not answered", preflight.incomplete, decisive=True, row="names")
    if preflight.skipped and preflight.several:
        yield Unknown("all-reduce", preflight.skipped, row="all-reduce")


def names_of(nodes: Iterable[NodeProbe | str]) -> str:
    """`node1`, `node1 and node2`, `node1, node2, node3 and 13 more`."""
    names = [node if isinstance(node, str) else node.name for node in nodes]
    if len(names) <= 2:
        return " and ".join(names)
    if len(names) <= 4:
        return f"{', '.join(names[:-1])} and {names[-1]}"
    return f"{', '.join(names[:3])} and {len(names) - 3} more"
