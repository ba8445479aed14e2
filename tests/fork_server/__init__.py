"""Tests that launch jobs fork their processes from one that has imported torch (server.py): `with forked():`."""

from __future__ import annotations

import os
import py_compile
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.fork_server import server

started = False


def start() -> None:
    """From now on the commands that this process starts are forked, where a fork can be what they are."""
    global started
    if started:
        return
    started = True
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    compiled = Path(tempfile.mkdtemp(), "server.pyc")
    py_compile.compile(str(Path(server.__file__)), str(compiled), dfile=server.BOOT, doraise=True)
    own = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ}
    subprocess.Popen(
        [sys.executable, "-u", str(compiled), str(theirs.fileno())],
        env=own | {"PYTHONPATH": server.AT_EXIT, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        pass_fds=(theirs.fileno(),),
        stdin=subprocess.DEVNULL,
    )
    theirs.close()
    server.use(ours)
