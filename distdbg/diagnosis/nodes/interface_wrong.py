"""A network interface that a node was told to use is not there, or nodes talk over interfaces of different MTU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from distdbg.diagnosis.nodes._nodes import of_nodes, parted
from distdbg.evidence.host.preflight import NodeProbe, Preflight, names_of
from distdbg.evidence.run import RunEvidence
from distdbg.findings import entries
from distdbg.model import Finding

DOCS = entries("interface-wrong")


def check(evidence: RunEvidence) -> Iterator[Finding]:
    preflight = evidence.preflight
    if preflight is None:
        return
    wrong: dict[str, list[NodeProbe]] = {}
    for node, facts in preflight.each("interfaces"):
        there = facts.get("interfaces", ())
        for variable, value in facts.get("told", {}).items():
            why = (_gloo if variable.startswith("GLOO") else _nccl)(str(value), there)
            if why:
                wrong.setdefault(f"{variable}={value} {why}", []).append(node)
    for words, nodes in wrong.items():
        have = ", ".join(str(one["name"]) for one in nodes[0].facts("interfaces")["interfaces"])
        yield of_nodes(DOCS[0], nodes, f"{words} on {names_of([n.name for n in nodes])}", f"There: {have}.")
    yield from _sizes(preflight)


def _gloo(value: str, there: Sequence[Mapping[str, Any]]) -> str:
    if any(sign in value for sign in "^="):
        return "is in NCCL's way of writing, and gloo takes names alone"
    known = {str(one["name"]): one for one in there}
    for name in value.split(","):
        if name not in known:
            return f"names no interface ({name!r})" if "," in value else "names no interface"
        if not known[name]["addresses"]:
            return f"names {name}, which has no address"
        if not known[name]["up"]:
            return f"names {name}, which is down"
    return ""


def _nccl(value: str, there: Sequence[Mapping[str, Any]]) -> str:
    """As ncclFindInterfaces reads it: at most one ^ and one = at the beginning, for the whole list."""
    leaves_out = value.startswith("^")
    text = value.removeprefix("^")
    exact = text.startswith("=")
    # A port may follow a name (NCCL ignores it here).
    words = [word.partition(":")[0] for word in text.removeprefix("=").split(",") if word]
    usable = [str(one["name"]) for one in there if one["up"] and one["addresses"]]
    fit = [name for name in usable if leaves_out != any(name == w if exact else name.startswith(w) for w in words)]
    if fit:
        return ""
    return "leaves no interface over" if leaves_out else "fits no interface that is up"


def _sizes(preflight: Preflight) -> Iterator[Finding]:
    """Of the interfaces over which the nodes have met."""
    said: dict[NodeProbe, str] = {}
    for node, facts in preflight.each("interfaces"):
        sources = {meeting.by_address.source for meeting in node.met if meeting.by_address.ok}
        for one in facts.get("interfaces", ()):
            if sources & set(one["addresses"]) and not one["loopback"]:
                said[node] = str(one["mtu"])
    sides = parted(said)
    if len(sides) > 1:
        odd = [node for _, nodes in sides[1:] for node in nodes]
        words = "; ".join(f"{mtu} on {names_of([n.name for n in nodes])}" for mtu, nodes in sides)
        yield of_nodes(DOCS[0], odd, f"the nodes' interfaces differ in MTU: {words}", severity="warning",
                       remedy="Give them one MTU: `ip link set dev NAME mtu N`, and the switch's.")  # fmt: skip
