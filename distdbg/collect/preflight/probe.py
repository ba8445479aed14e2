"""Probe one node of a preflight: the program that runs on each node.

    python <absolute>/distdbg/collect/preflight/probe.py --folder DIR [--name NAME] [--port P] [--token FILE]

It looks at once, then does what lines of JSON on standard input ask for; it ends with its standard input, so that
nothing is left on a node whose caller is gone. Answers are lines of evidence/host/probe_lines.py. Standard library.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":  # started by its path: our folder must not shadow the standard library
    sys.path[0] = sys.path[0].rsplit("/distdbg/", 1)[0]

import argparse
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import threading
from pathlib import Path
from typing import Any

from distdbg.collect.preflight import disk, gpus, interfaces, limits, names, ptrace, software
from distdbg.collect.preflight.looking import look_all
from distdbg.collect.preflight.meeting import Listener, meet
from distdbg.evidence.host.probe_lines import pack
from distdbg.plain_text import first_words

_LOOK_WITHIN_S = 8.0
_BANDWIDTH = Path(__file__).with_name("bandwidth.py")


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("--folder", type=Path, required=True)
    asked.add_argument("--name", default=os.environ.get("SLURMD_NODENAME") or socket.gethostname())
    asked.add_argument("--port", type=int, default=0)
    asked.add_argument("--token", default="")
    given = asked.parse_args()
    node = _ProbedNode(re.sub(r"\s", "_", given.name), given.folder, given.port, given.token)
    node.say("looked", node.look())
    # readline, not iteration: a request is answered when it comes
    for line in iter(sys.stdin.readline, ""):
        with contextlib.suppress(ValueError):
            node.obey(json.loads(line))
    node.end()


class _ProbedNode:
    def __init__(self, name: str, folder: Path, port: int, token: str) -> None:
        self._name = name
        self._folder = folder
        self._token = token
        self._wanted = port
        self._listener = Listener(name, port)
        self._children: list[subprocess.Popen[str]] = []

    def look(self) -> dict[str, Any]:
        looks = {
            "names": names.look,
            "interfaces": interfaces.look,
            "disk": lambda: disk.look(self._folder, self._token),
            "limits": limits.look,
            "ptrace": ptrace.look,
            "software": lambda: software.look(self._folder),
            "gpus": gpus.look,
        }
        port = {"wanted": self._wanted, "got": self._listener.port, "because": self._listener.because}
        return {"port": port, **look_all(looks, _LOOK_WITHIN_S)}

    def say(self, kind: str, value: dict[str, Any]) -> None:
        sys.stdout.write("".join(f"{line}\n" for line in pack(self._name, kind, value)))
        sys.stdout.flush()

    def obey(self, request: dict[str, Any]) -> None:
        if request.get("do") == "meet":
            self.say("met", {"met": meet(request["whom"][self._name])})
        elif request.get("do") == "reduce" and self._name in request["order"]:
            self._listener.close()  # the store takes the very port that was tried
            threading.Thread(target=self._reduce, args=(request,), daemon=True).start()

    def _reduce(self, request: dict[str, Any]) -> None:
        rank = request["order"].index(self._name)
        words = [rank, len(request["order"]), request["address"], request["port"], request["backend"]]
        child = subprocess.Popen(
            [sys.executable, str(_BANDWIDTH), *map(str, words)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
        )  # fmt: skip
        self._children.append(child)
        out, err = child.communicate()
        lines = [line for line in out.splitlines() if line.startswith("{")]
        self.say("reduced", json.loads(lines[-1]) if lines else {"unknown": _last_words(err, child.returncode)})

    def end(self) -> None:
        for child in self._children:
            if child.poll() is None:
                child.send_signal(signal.SIGKILL)
        os._exit(0)  # a look may still hang in the kernel


def _last_words(err: str, code: int) -> str:
    lines = [line.strip() for line in err.splitlines() if line.strip()]
    return first_words(lines[-1], 300) if lines else f"it ended with {code} and said nothing"


if __name__ == "__main__":
    main()
