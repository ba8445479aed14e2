"""A node does not answer, or the nodes do not reach each other under the names and addresses that a job uses."""

from __future__ import annotations

from collections.abc import Iterator

from distdbg.diagnosis.nodes._nodes import of_nodes
from distdbg.evidence.host.preflight import Meeting, NodeProbe, Preflight, names_of
from distdbg.evidence.run import RunEvidence
from distdbg.findings import entries
from distdbg.model import Finding

DOCS = entries("unreachable")
_HOSTS = (
    "Give the name an address that the other nodes reach, in /etc/hosts or DNS (Debian writes 127.0.1.1 there); or "
    "name the first node by its address."
)


def check(evidence: RunEvidence) -> Iterator[Finding]:
    preflight = evidence.preflight
    if preflight is None:
        return
    yield from _silent(preflight)
    yield from _port_taken(preflight)
    if preflight.on != "local":
        yield from _own_names(preflight)
    for node in preflight.answered:
        for meeting in node.met:
            yield from _not_met(preflight, node, meeting)


def _silent(preflight: Preflight) -> Iterator[Finding]:
    reasons: dict[str, list[NodeProbe]] = {}
    for node in preflight.nodes:
        if node.because:
            reasons.setdefault(node.because.replace(node.name, "it"), []).append(node)
    for nodes in reasons.values():
        summary = f"{names_of([node.name for node in nodes])} did not answer: {nodes[0].because}"
        yield of_nodes(DOCS[0], nodes, summary)
    unnamed = preflight.expected - len(preflight.nodes)
    if unnamed > 0:
        said = "; ".join(preflight.said)
        summary = f"{unnamed} of {preflight.expected} nodes did not answer, and nobody says which"
        yield of_nodes(DOCS[0], (), summary, f"What was said: {said}" if said else "")


def _port_taken(preflight: Preflight) -> Iterator[Finding]:
    master = preflight.node(preflight.master)
    port = master.looks.get("port", {}) if master is not None else {}
    if master is not None and preflight.port and port.get("because"):
        yield of_nodes(
            DOCS[0], (master,), f"port {preflight.port} cannot be used on {master.name}: {port['because']}",
            "The first node of a job listens there.",
            remedy=f"Give another with --port, or see who has it: ss -ltnp 'sport = :{preflight.port}'",
        )  # fmt: skip


def _own_names(preflight: Preflight) -> Iterator[Finding]:
    """gloo tells its peers the address of its own name, unless it is told an interface."""
    if not preflight.several:
        return
    wrong: dict[NodeProbe, str] = {}
    for node, facts in preflight.each("names"):
        told = node.facts("interfaces").get("told", {})
        addresses = facts.get("addresses") or ()
        if addresses and _is_loopback(str(addresses[0])) and "GLOO_SOCKET_IFNAME" not in told:
            wrong[node] = f"{facts['hostname']} is {addresses[0]} on {node.name}"
    for node, words in wrong.items():
        # A job over NCCL uses interfaces, and may never ask for a name.
        by_gloo = not all(facts.get("gpus") for _, facts in preflight.each("gpus"))
        yield of_nodes(
            DOCS[0], (node,), f"{words}: gloo on {node.name} would tell its peers an address that leads to themselves",
            "A host whose own name resolves to its loopback address cannot be reached under it.",
            severity="error" if by_gloo else "warning", remedy=f"{_HOSTS} Or set GLOO_SOCKET_IFNAME.",
        )  # fmt: skip


def _not_met(preflight: Preflight, node: NodeProbe, meeting: Meeting) -> Iterator[Finding]:
    peer = preflight.node(meeting.to)
    both = (node, peer) if peer is not None else (node,)
    named, direct = meeting.by_name, meeting.by_address
    hostname = str(peer.facts("names").get("hostname", meeting.to)) if peer is not None else meeting.to
    if not direct.ok:
        where = f" at {direct.address}" if direct.address else ""
        summary = f"{node.name} does not reach {meeting.to}{where}: {direct.because}"
        cause = f"By its name neither: {_how_named(hostname, node, meeting)}." if named is not None else ""
        yield of_nodes(DOCS[0], both, summary, cause)
    elif named is not None and not named.ok and preflight.on != "local":
        summary = f"{_how_named(hostname, node, meeting)}; at {direct.address} {meeting.to} does answer"
        yield of_nodes(
            DOCS[0], (node,), summary, "torchrun gives its first node's name to all the others.",
            severity="error" if named.resolved else "warning", remedy=_HOSTS,
        )  # fmt: skip


def _how_named(hostname: str, node: NodeProbe, meeting: Meeting) -> str:
    named = meeting.by_name
    assert named is not None
    if not named.resolved:
        return f"{node.name} does not know the name {hostname} ({named.because})"
    return f"{hostname} is {', '.join(named.resolved)} on {node.name}, where {_nobody(named.because)}"


def _nobody(because: str) -> str:
    return because if because.endswith("answers there") else f"nobody answers ({because})"


def _is_loopback(address: str) -> bool:
    return address.startswith("127.") or address == "::1"
