"""`distdbg preflight`: run a probe on every node, lead it through its steps (look, meet, reduce), collect evidence.

What the probes say is kept as it came. A node that does not answer holds up the others for a bounded time; every probe
ends when this process lets go of its standard input, however it ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import selectors
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from distdbg.backend_names import AUTO
from distdbg.collect.runs.known_secrets import known_secrets
from distdbg.errors import UsageError
from distdbg.evidence.host.preflight import Preflight, read_preflight
from distdbg.evidence.host.probe_lines import ProbeUnpacker
from distdbg.hidden_values import HiddenValues
from distdbg.launch.backends import in_order, named
from distdbg.launch.backends.interface import ProbeCommand, ProbeOptions
from distdbg.plain_text import first_words
from distdbg.whole_file import write_whole

if TYPE_CHECKING:
    from distdbg.launch.backends.interface import Backend

#: After the first node has answered, the others get this long; ssh gives up on a dead host after 10 s.
_LOOK_WITHIN_S = 15.0
_FIRST_WITHIN_S = 30.0
_MEET_WITHIN_S = 20.0
_REDUCE_WITHIN_S = 60.0
_END_WITHIN_S = 3.0
#: Interfaces that join containers on one machine: their addresses, the same on every node, are tried last.
_INWARD = ("docker", "br-", "virbr", "cni", "flannel", "cali")


def ask(
    on: str,
    nodes: int | None,
    hosts: tuple[str, ...],
    *,
    port: int = 0,
    ssh_options: Sequence[str] = (),
    reduce: bool = True,
    say: Callable[[str], None] = lambda _: None,
) -> Preflight:
    """`on` is auto or a backend. Raises UsageError, ToolMissing, NothingToAnalyse."""
    folder = Path.cwd()
    with _token(folder) as token:
        options = ProbeOptions(nodes, hosts, folder, token, port, tuple(ssh_options))
        backend = _choose(on, options)
        raw = conduct(backend, backend.probes(options), port=port, reduce=reduce, say=say)
    preflight = read_preflight(HiddenValues(known=known_secrets()).mask_all(raw))
    if not preflight.nodes and not preflight.incomplete:
        raise backend.no_nodes("; ".join(preflight.said))
    return preflight


@contextlib.contextmanager
def _token(folder: Path) -> Iterator[str]:
    """A file that only those see who see this folder; its name, or nothing where none can be made."""
    path = folder / f".distdbg-preflight-{secrets.token_hex(4)}"
    try:
        write_whole(path, b"", private=False)
    except OSError:
        yield ""
        return
    try:
        yield path.name
    finally:
        with contextlib.suppress(OSError):
            path.unlink()


def _choose(on: str, options: ProbeOptions) -> Backend:
    """Raises UsageError for what does not fit together."""
    if on == AUTO:
        for backend in in_order():
            if backend.claims_probes(options):
                return backend
        raise UsageError("no backend takes this preflight", "Name one with --on.")
    backend = named(on)
    if options.hosts and not backend.takes_hosts:
        raise UsageError(f"--hosts names hosts to reach by ssh, and --on is {on}", "Leave one of them out.")
    return backend


@dataclass
class _Channel:
    carried: ProbeCommand
    process: subprocess.Popen[bytes]
    errors: IO[bytes]
    unpacker: ProbeUnpacker = field(default_factory=ProbeUnpacker)
    rest: bytes = b""
    open: bool = True


def conduct(
    backend: Backend, carried: Sequence[ProbeCommand], *, port: int, reduce: bool, say: Callable[[str], None]
) -> dict[str, Any]:
    """The raw preflight (schema distdbg.preflight/1): what each node said, and why one said nothing."""
    probes, begun, incomplete = _Probes(carried), time.time(), ""
    try:
        try:
            skipped = _lead(backend, carried, probes, reduce=reduce, say=say)
        except KeyboardInterrupt:
            skipped = incomplete = "the preflight was interrupted"
        names = _names(carried, probes.said, backend)
        return {
            "schema": "distdbg.preflight/1",
            "on": backend.name,
            "one_machine": backend.one_machine,
            "began": begun,
            "seconds": round(time.time() - begun, 2),
            "incomplete": incomplete,
            "master": names[0] if names else "",
            "port": port,
            "expected": sum(one.count for one in carried),
            "all_reduce_skipped": skipped,
            "nodes": {
                name: {**probes.said.get(name, {}), "because": probes.because(name, incomplete)} for name in names
            },
            "said": probes.noise(),
        }
    finally:
        probes.end()


def _lead(
    backend: Backend, carried: Sequence[ProbeCommand], probes: _Probes, *, reduce: bool, say: Callable[[str], None]
) -> str:
    """Lead the probes through their steps; why there is no all-reduce, empty if there is one."""
    say("looking at the nodes")
    probes.wait("looked", _LOOK_WITHIN_S, _FIRST_WITHIN_S + carried[0].wait_s)
    names = _names(carried, probes.said, backend)
    if len(names) > 1 and "looked" in probes.said.get(names[0], {}):
        say("nodes meet")
        probes.tell({"do": "meet", "whom": _whom(names, names[0], probes.said)})
        probes.wait("met", _MEET_WITHIN_S)
    skipped = _why_not(backend, names, probes.said, reduce=reduce)
    if not skipped:
        say("all-reduce")
        probes.tell(_reduction(backend, names, probes.said))
        probes.wait("reduced", _REDUCE_WITHIN_S)
    return skipped


class _Probes:
    """The processes here that carry probes. `said` is node -> kind -> value."""

    def __init__(self, carried: Sequence[ProbeCommand]) -> None:
        self.said: dict[str, dict[str, Any]] = {}
        self._expected = sum(one.count for one in carried)
        self._selector = selectors.DefaultSelector()
        self._channels = [self._start(one) for one in carried]

    def _start(self, carried: ProbeCommand) -> _Channel:
        errors = tempfile.TemporaryFile()  # noqa: SIM115 -- closed in end()
        process = subprocess.Popen(
            carried.argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
        )
        channel = _Channel(carried, process, errors)
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        self._selector.register(process.stdout, selectors.EVENT_READ, channel)
        return channel

    def wait(self, kind: str, within: float, first_within: float | None = None) -> None:
        """Wait until every node that can still answer has sent `kind`. `within` counts from the first answer on."""
        deadline = time.monotonic() + (first_within or within)
        anybody = first_within is None
        while (left := deadline - time.monotonic()) > 0 and not self._all_said(kind):
            for key, _ in self._selector.select(min(left, 0.5)):
                self._read(key.data)
            if not anybody and any(kind in said for said in self.said.values()):
                anybody, deadline = True, min(deadline, time.monotonic() + within)

    def _all_said(self, kind: str) -> bool:
        if not any(channel.open for channel in self._channels):
            return True
        if kind == "looked":
            done = sum("looked" in said for said in self.said.values())
            closed = [c.carried.names for c in self._channels if not c.open]
            dead = sum(len(names) for names in closed if not any("looked" in self.said.get(n, {}) for n in names))
            return done + dead >= self._expected
        return all(kind in self.said[name] for name in self.said if self._living(name))

    def _living(self, name: str) -> bool:
        return any(channel.open and name in (channel.carried.names or (name,)) for channel in self._channels)

    def _read(self, channel: _Channel) -> None:
        assert channel.process.stdout is not None
        data = os.read(channel.process.stdout.fileno(), 1 << 16)
        if not data:
            channel.open = False
            self._selector.unregister(channel.process.stdout)
            return
        *lines, channel.rest = (channel.rest + data).split(b"\n")
        for line in lines:
            if (message := channel.unpacker.take(line.decode("utf-8", "replace"))) is not None:
                node, kind, value = message
                self.said.setdefault(node, {})[kind] = value

    def tell(self, request: Mapping[str, Any]) -> None:
        line = json.dumps(request).encode() + b"\n"
        for channel in self._channels:
            with contextlib.suppress(OSError, ValueError):
                if channel.open and channel.process.stdin is not None:
                    channel.process.stdin.write(line)
                    channel.process.stdin.flush()

    def because(self, name: str, incomplete: str) -> str:
        """Why a node has not answered, in the words of what carried its probe; empty if it has. `incomplete`: why it
        was not waited for."""
        if "looked" in self.said.get(name, {}):
            return ""
        for channel in self._channels:
            if name in (channel.carried.names or (name,)):
                if incomplete and channel.process.poll() is None:
                    return incomplete
                ended = "" if channel.process.poll() is None else f" and ended with {channel.process.returncode}"
                words = self._words(channel)
                tool = channel.carried.argv[0].rpartition("/")[2]
                return f"{tool} said: {words}" if words else f"{tool} said nothing{ended}" if ended else "no answer"
        return "nothing was sent there"

    def noise(self) -> list[str]:
        return [words for channel in self._channels if (words := self._words(channel))]

    def _words(self, channel: _Channel) -> str:
        channel.errors.seek(0)
        lines = channel.errors.read(20_000).decode("utf-8", "replace").splitlines()
        kept = [line.strip() for line in lines if line.strip() and not line.startswith("Warning: Permanently added")]
        return first_words(" | ".join(kept[:3]), 400)

    def end(self) -> None:
        for channel in self._channels:
            with contextlib.suppress(OSError):
                if channel.process.stdin is not None:
                    channel.process.stdin.close()
        deadline = time.monotonic() + _END_WITHIN_S
        for channel in self._channels:
            for final in (channel.process.terminate, channel.process.kill):
                try:
                    channel.process.wait(max(0.05, deadline - time.monotonic()))
                    break
                except subprocess.TimeoutExpired:
                    final()
                    deadline = time.monotonic() + 1.0
            with contextlib.suppress(subprocess.TimeoutExpired):
                channel.process.wait(1.0)
            if channel.process.stdout is not None:
                channel.process.stdout.close()
            channel.errors.close()


def _names(carried: Sequence[ProbeCommand], said: Mapping[str, Mapping[str, Any]], backend: Backend) -> list[str]:
    """All nodes in their order, the first is the master. Where a scheduler chose them, those of its own list that
    answered know who else should have."""
    names = [name for one in carried for name in one.names]
    if names:
        return names
    folded = next((s["looked"]["names"].get("allocation", "") for s in said.values() if "looked" in s), "")
    with contextlib.suppress(ValueError):
        return backend.unfold(folded) or sorted(said)
    return sorted(said)


def _whom(names: Sequence[str], master: str, said: Mapping[str, Mapping[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Every node meets the master by name; the master meets every node by address, as peers in a group do."""
    peers = {name: _peer(name, said[name]["looked"]) for name in names if "looked" in said.get(name, {})}
    ours = peers[master]
    return {
        name: [ours] if name != master else [{**peer, "hostname": ""} for peer in peers.values() if peer is not ours]
        for name in peers
    }


def _peer(name: str, looked: Mapping[str, Any]) -> dict[str, Any]:
    own = sorted(looked["interfaces"].get("interfaces", ()), key=lambda one: one["name"].startswith(_INWARD))
    addresses = [a for one in own if one["up"] and not one["loopback"] for a in one["addresses"] if a[:4] != "fe80"]
    hostname = looked["names"].get("hostname", "")
    return {"name": name, "hostname": hostname, "addresses": addresses or ["127.0.0.1"], "port": looked["port"]["got"]}


def _why_not(backend: Backend, names: Sequence[str], said: Mapping[str, Mapping[str, Any]], *, reduce: bool) -> str:
    """Why there is no all-reduce; empty where there is one."""
    if not reduce:
        return "it was not asked for"
    if len(names) < 2:
        return "there is one node"
    silent = [name for name in names if "looked" not in said.get(name, {})]
    if silent:
        return f"{', '.join(silent)} did not answer"
    apart = [
        f"{name} and {one['to']}"
        for name in names
        for one in said[name].get("met", {}).get("met", [{"to": names[0]}] if name != names[0] else [])
        if not (one.get("by_address") or {}).get("ok")
    ]
    if apart:
        return f"{apart[0]} do not reach each other"
    misnamed = [name for name in names if not backend.one_machine and _tells_loopback(said[name]["looked"])]
    if misnamed:
        return f"gloo would wait in vain: to {misnamed[0]} its own name is its loopback address"
    bare = [name for name in names if "torch" not in said[name]["looked"]["software"].get("versions", {})]
    return f"{', '.join(bare)} has no torch" if bare else ""


def _tells_loopback(looked: Mapping[str, Any]) -> bool:
    addresses = looked["names"].get("addresses") or [""]
    variables = looked["interfaces"].get("told", {})
    return addresses[0].startswith("127.") and "GLOO_SOCKET_IFNAME" not in variables and not looked["gpus"].get("gpus")


def _reduction(backend: Backend, names: Sequence[str], said: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Over NCCL where each node has a GPU and a torch for it, else over gloo; at the address that the nodes reached."""
    looked = [said[name]["looked"] for name in names]
    gpus = all(look["gpus"].get("gpus") and "cuda" in look["software"]["versions"] for look in looked)
    attempts = [one["by_address"]["address"] for name in names[1:] for one in said[name]["met"]["met"]]
    return {
        "do": "reduce",
        "order": list(names),
        "address": attempts[0],
        "port": looked[0]["port"]["got"],
        "backend": "nccl" if gpus and not backend.one_machine else "gloo",
    }
