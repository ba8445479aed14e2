"""Healthy waits planted in clients on a machine that is busy: nothing may be found, said to hang, or ended.

    .venv/bin/python benchmarks/healthy_controls.py [words]      about 20 minutes on two cores

Four processes that use all the CPU they get run beside every job, and every setting is the default. A wait comes once,
in the third step or where the client saves; what follows runs to its end. `words` picks jobs whose description has all
of them. Prints a line for each job; the exit code is 1 where one of them is not left alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from distdbg.rundir import list_runs
from tests.conftest import environment_in, processes_of
from tests.inject.faults import Fault
from tests.inject.injection import CLIENTS, Injection, places

_AT_ONCE = 2
_HOGS = 4
_CHILD = "import time; end = time.time() + 75\nwhile time.time() < end: pass"
_COMPUTES = "import time; end = time.time() + 40\nwhile time.time() < end: pass"


@dataclass(frozen=True, slots=True)
class Wait:
    """`ranks` come to it, None for all."""

    name: str
    line: str
    place: str
    rank: int | None = None


_WRITES = "_pathlib.Path(f'part{os.getpid()}').write_bytes(bytes(1 << 20)); __import__('time').sleep(0.2)"
WAITS = (
    Wait("a checkpoint of 40 s", f"for _ in range(200): {_WRITES}", "save", 0),
    Wait("a first step of 40 s", f"exec({_COMPUTES!r})", "start"),
    Wait("a child that computes for 75 s", f"__import__('subprocess').run(['python3', '-c', {_CHILD!r}])", "step", 1),
    Wait("a sleep of 75 s", "__import__('time').sleep(75)", "step"),
)
#: Said of a client with and without a wait, and rightly.
_TRUE = {"checkpoint-not-atomic"}


def main() -> int:
    jobs = [
        (client, wait)
        for client in CLIENTS
        for wait in WAITS
        if wait.place in places(client) and all(w in f"{client.stem}: {wait.name}" for w in sys.argv[1:])
    ]
    with _busy(), ThreadPoolExecutor(_AT_ONCE) as pool:
        wrong = [said for said in pool.map(_run, jobs) if said]
    print(f"{len(jobs) - len(wrong)} of {len(jobs)} jobs were left alone")
    return int(bool(wrong))


@contextmanager
def _busy() -> Iterator[None]:
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(_HOGS)]
    try:
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


def _run(job: tuple[Path, Wait]) -> str:
    """What was wrong with it."""
    client, wait = job
    with tempfile.TemporaryDirectory(prefix="healthy") as name:
        folder = Path(name)
        injection = Injection(client, Fault(wait.name, wait.line, (), (0,)), wait.place, wait.rank, 2)
        copy, _ = injection.write(folder)
        words = ["launch", "--nproc-per-node", "2", str(copy), str(folder)]
        done = subprocess.run(
            [sys.executable, "-m", "distdbg", *words],
            cwd=folder,
            env={**environment_in(folder), "PLANTED": str(folder / "planted")},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        run = list_runs(folder / "distdbg-runs")[-1]
        report = json.loads(run.report_json.read_text())
        events = [json.loads(line)["event"] for line in run.events.read_text().splitlines()]
        said = [f"exit code {done.returncode}"] * bool(done.returncode)
        said += [f"{f['id']} of {f['ranks']}: {f['summary']}" for f in report["findings"] if f["id"] not in _TRUE]
        said += [e for e in events if e in ("stalled", "timeout-near", "start-slow", "ended-hung")]
        said += ["the wait was never met"] * (not (folder / "planted").exists())
        said += [f"processes left: {left}" for left in [processes_of(folder)] if left]
    text = "; ".join(said)
    print(f"{client.stem}: {wait.name}: {text or 'left alone'}", flush=True)
    return text


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
