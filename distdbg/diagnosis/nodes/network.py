"""Check whether the nodes of a job reach each other: by names, by interfaces, and with an all-reduce."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from distdbg.diagnosis.node_findings import looks, node_finding, parted, together
from distdbg.diagnosis.rules import rule
from distdbg.evidence.host.preflight import NodeProbe, PeerMeeting, Preflight, names_of
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding

_HOSTS = (
    "Give the name an address that the other nodes reach, in /etc/hosts or DNS (Debian writes 127.0.1.1 there); or "
    "name the first node by its address."
)


@rule("unreachable", needs=("preflight",))
def unreachable(evidence: RunEvidence) -> Iterator[Finding]:
    """A node does not answer, or the nodes do not reach each other under the names and addresses that a job uses."""
    preflight = evidence.preflight
    if preflight is None:
        return
    yield from _silent(preflight)
    master = preflight.node(preflight.master)
    port = master.looks.get("port", {}) if master is not None else {}
    if master is not None and preflight.port and port.get("because"):
        yield node_finding(
            "unreachable", (master,), f"port {preflight.port} cannot be used on {master.name}: {port['because']}",
            "The first node of a job listens there.",
            remedy=f"Give another with --port, or see who has it: ss -ltnp 'sport = :{preflight.port}'",
        )  # fmt: skip
    if not preflight.one_machine:
        yield from _own_names(preflight)
    for node in preflight.answered:
        for meeting in node.met:
            yield from _not_met(preflight, node, meeting)


def _silent(preflight: Preflight) -> Iterator[Finding]:
    silent = ((node.because.replace(node.name, "it"), node) for node in preflight.nodes
              if node.because and node.because != preflight.incomplete)  # fmt: skip
    for _, nodes in together(silent):
        yield node_finding("unreachable", nodes, f"{names_of(nodes)} did not answer: {nodes[0].because}")
    unnamed = preflight.expected - len(preflight.nodes)
    if unnamed > 0 and not preflight.incomplete:
        said = "; ".join(preflight.said)
        summary = f"{unnamed} of {preflight.expected} nodes did not answer; which ones is not known"
        yield node_finding("unreachable", (), summary, f"What was said: {said}" if said else "")


def _own_names(preflight: Preflight) -> Iterator[Finding]:
    """gloo sends its peers the address of its host name, unless an interface is configured."""
    if not preflight.several:
        return
    wrong: dict[NodeProbe, str] = {}
    for node, facts in preflight.each("names"):
        variables = node.facts("interfaces").get("told", {})
        first = str(next(iter(facts.get("addresses") or ()), ""))
        if (first.startswith("127.") or first == "::1") and "GLOO_SOCKET_IFNAME" not in variables:
            wrong[node] = f"{facts['hostname']} is {first} on {node.name}"
    for node, words in wrong.items():
        # A job over NCCL uses interfaces, and may never ask for a name.
        by_gloo = not all(facts.get("gpus") for _, facts in preflight.each("gpus"))
        yield node_finding(
            "unreachable", (node,),
            f"{words}: gloo on {node.name} would give its peers an address that leads to themselves",
            "A host whose own name resolves to its loopback address cannot be reached under it.",
            severity="error" if by_gloo else "warning", remedy=f"{_HOSTS} Or set GLOO_SOCKET_IFNAME.",
        )  # fmt: skip


def _not_met(preflight: Preflight, node: NodeProbe, meeting: PeerMeeting) -> Iterator[Finding]:
    peer = preflight.node(meeting.to)
    both = (node, peer) if peer is not None else (node,)
    named, direct = meeting.by_name, meeting.by_address
    hostname = str(peer.facts("names").get("hostname", meeting.to)) if peer is not None else meeting.to
    if not direct.ok:
        where = f" at {direct.address}" if direct.address else ""
        summary = f"{node.name} does not reach {meeting.to}{where}: {direct.because}"
        cause = f"By its name neither: {_how_named(hostname, node, meeting)}." if named is not None else ""
        yield node_finding("unreachable", both, summary, cause)
    elif named is not None and not named.ok and not preflight.one_machine:
        summary = f"{_how_named(hostname, node, meeting)}; at {direct.address} {meeting.to} does answer"
        yield node_finding(
            "unreachable", (node,), summary, "torchrun gives its first node's name to all the others.",
            severity="error" if named.resolved else "warning", remedy=_HOSTS,
        )  # fmt: skip


def _how_named(hostname: str, node: NodeProbe, meeting: PeerMeeting) -> str:
    named = meeting.by_name
    assert named is not None
    if not named.resolved:
        return f"{node.name} does not know the name {hostname} ({named.because})"
    answers = f"{named.answered_by} answers there" if named.answered_by else f"nobody answers ({named.because})"
    return f"{hostname} is {', '.join(named.resolved)} on {node.name}, where {answers}"


@rule("duplicate-node-rank", needs=("preflight",))
def duplicate_node_rank(evidence: RunEvidence) -> Iterator[Finding]:
    """Two nodes would be one: the same rank, or the same machine under two names."""
    preflight = evidence.preflight
    if preflight is None or preflight.one_machine:
        return
    known = dict(preflight.each("names"))
    for identity, nodes in parted({node: str(facts.get("identity", node.name)) for node, facts in known.items()}):
        if len(nodes) > 1:
            words = f"{names_of(nodes)} are one machine, which calls itself {identity.split()[0]}"
            yield node_finding("duplicate-node-rank", nodes, words)
    for variable in sorted({name for facts in known.values() for name in facts.get("ranks", {})}):
        ranks = {node: str(f["ranks"][variable]) for node, f in known.items() if variable in f.get("ranks", {})}
        for rank, nodes in parted(ranks):
            if len(nodes) > 1:
                words = f"{names_of(nodes)} all have node rank {rank} ({variable}={rank})"
                yield node_finding("duplicate-node-rank", nodes, words)


@rule("interface-wrong", needs=("preflight",))
def interface_wrong(evidence: RunEvidence) -> Iterator[Finding]:
    """A configured network interface does not exist on a node, or nodes use interfaces of different MTU."""
    wrong = (
        (f"{variable}={value} {why}", node)
        for node, facts in looks(evidence, "interfaces")
        for variable, value in facts.get("told", {}).items()
        if (why := (_gloo if variable.startswith("GLOO") else _nccl)(str(value), facts.get("interfaces", ())))
    )
    for words, nodes in together(wrong):
        have = ", ".join(str(one["name"]) for one in nodes[0].facts("interfaces")["interfaces"])
        yield node_finding("interface-wrong", nodes, f"{words} on {names_of(nodes)}", f"There: {have}.")
    yield from _packet_sizes(evidence)


def _gloo(value: str, there: Sequence[Mapping[str, Any]]) -> str:
    if any(character in value for character in "^="):
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
    """Parse an interface list as ncclFindInterfaces does: at most one ^ and one = at the beginning, for the whole
    list."""
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


def _packet_sizes(evidence: RunEvidence) -> Iterator[Finding]:
    """Compare the MTU of the interfaces through which the nodes have met."""
    said: dict[NodeProbe, str] = {}
    for node, facts in looks(evidence, "interfaces"):
        sources = {meeting.by_address.source for meeting in node.met if meeting.by_address.ok}
        for one in facts.get("interfaces", ()):
            if sources & set(one["addresses"]) and not one["loopback"]:
                said[node] = str(one["mtu"])
    sides = parted(said)
    if len(sides) > 1:
        odd = [node for _, nodes in sides[1:] for node in nodes]
        words = "; ".join(f"{mtu} on {names_of(nodes)}" for mtu, nodes in sides)
        yield node_finding("interface-wrong", odd, f"the nodes' interfaces differ in MTU: {words}", severity="warning",
                       remedy="Give them one MTU: `ip link set dev NAME mtu N`, and the switch's.")  # fmt: skip


@rule("all-reduce-failed", needs=("preflight",))
def all_reduce_failed(evidence: RunEvidence) -> Iterator[Finding]:
    """The nodes reach each other, and still an all-reduce over them fails."""
    preflight = evidence.preflight
    if preflight is None or preflight.skipped or not preflight.several or len(preflight.answered) < 2:
        return
    failed = ((why, node) for node in preflight.answered if (why := _why_not_reduced(node)) is not None)
    for why, nodes in together(failed):
        yield node_finding("all-reduce-failed", nodes, f"the all-reduce failed on {names_of(nodes)}: {why}")


def _why_not_reduced(node: NodeProbe) -> str | None:
    if node.reduced is None:
        return "it did not come to its end"
    if "unknown" in node.reduced:
        return str(node.reduced["unknown"])
    return None if node.reduced.get("ok") else "the sum is wrong"
