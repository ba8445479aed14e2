"""One preflight from what was asked for to evidence."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from distdbg.backend_names import AUTO
from distdbg.errors import UsageError
from distdbg.evidence.host.preflight import Preflight, read_preflight
from distdbg.launch.backends import in_order, named
from distdbg.launch.backends.probes import ProbeOptions
from distdbg.launch.preflight.conduct import conduct
from distdbg.whole_file import write_whole

if TYPE_CHECKING:
    from distdbg.launch.backends.interface import Backend


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
    preflight = read_preflight(raw)
    if not preflight.nodes:
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
