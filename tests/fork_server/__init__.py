"""Tests that launch jobs fork their processes from one that has imported torch: server.py says how."""

from __future__ import annotations

import os
import py_compile
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.fork_server import server

#: On the path of every Python that a test starts: it knows how to end beside gloo's threads.
AT_EXIT = Path(__file__).resolve().parents[1] / "at_exit"
#: One thread each: a fork has no other.
_THREADS = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
_servers: server.Servers = {}
_tried: set[server.Kind] = set()


def allow(forks: bool) -> None:
    """Whether commands that this process starts from now on may be forked."""
    server.use(_servers if forks else {})


def start(environment: Mapping[str, str]) -> None:
    """Be able to fork commands with this PYTHONPATH and LD_LIBRARY_PATH, and none of the variables that torch reads
    when it is imported. Where the kernel does not let a fork look like another command, none will be."""
    own = {name: environment[name] for name in ("PYTHONPATH", "LD_LIBRARY_PATH") if name in environment}
    kind = server.kind_of(own | {"OMP_NUM_THREADS": "1"})
    if kind in _tried:
        return
    _tried.add(kind)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with tempfile.TemporaryDirectory() as folder:
        compiled = Path(folder, "server.pyc")
        py_compile.compile(str(Path(server.__file__)), str(compiled), dfile=server.BOOT, doraise=True)
        subprocess.Popen(
            [sys.executable, "-u", str(compiled), str(theirs.fileno())],
            env={"PATH": os.environ["PATH"], **own, **_THREADS},
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
        )
        theirs.close()
        if ours.recv(64):
            _servers[kind] = ours
