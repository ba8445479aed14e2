"""Builds run directories as an agent would have left them, without running anything.

run = MadeRun(tmp_path, ranks=4, nodes=2)
run.exits(3, -9)                     # rank 3 is killed
run.raises(1, "ValueError", "boom")  # rank 1 raises, uncaught
report = run.report()
"""

from __future__ import annotations

import json
from pathlib import Path

from distdbg.collect.runs.launcher_process import describe_launcher
from distdbg.collect.runs.run_evidence import load_evidence
from distdbg.diagnosis.verdict import build_report
from distdbg.launch.io import journal
from distdbg.protocol.message import Event
from distdbg.rundir import RunDir

T0 = 1_790_000_000.0
GLOO_LOST = (
    "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:20137. "
    "This is typically caused by a remote worker crashing."
)


def traceback_text(kind, message, file="/home/me/train.py", line=88, function="step", source="loss = net(x)"):
    return (
        "Traceback (most recent call last):\n"
        f'  File "{file}", line {line}, in {function}\n    {source}\n'
        '  File "/venv/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1776, in _call_impl\n'
        "    return forward_call(*args, **kwargs)\n"
        f"{kind}: {message}\n"
    )


def note(run, event, **fields):
    """One event of the launcher, also one that lacks fields, as an older launcher may have left it."""
    journal.note(run, Event.kinds[event].from_record(fields))


class MadeRun:
    def __init__(self, folder: Path, ranks=4, nodes=2, *, started=T0, attempt=1, name="20260101T000000Z-train-beef"):
        self.dir = RunDir(folder / name)
        self.attempt = attempt
        self.ranks, self.nodes = ranks, nodes
        self.per_node = ranks // nodes
        self.t0 = started
        self.node_files = [self.dir.attempt(attempt).node(n, f"node{n}") for n in range(nodes)]
        for node, files in enumerate(self.node_files):
            files.folder.mkdir(parents=True)
            self.event(node, "agent-started", t=0, pid=100 + node, host=f"node{node}", node_rank=node)
            self.event(node, "cgroup", t=0, when="before", oom_kill=0, limit=8 << 30)
            mine = {str(r): r % self.per_node for r in self.ranks_of(node)}
            self.event(node, "attempt-started", t=0.1, attempt=attempt, ranks=mine)
        for rank in range(ranks):
            self.files(rank).folder.mkdir(parents=True)
            self.event(self.node_of(rank), "rank-started", t=1.0, rank=rank, pid=1000 + rank, attempt=attempt)
        self.codes: dict[int, int | None] = {}
        if not self.dir.job.exists():
            self.dir.job.write_text(json.dumps(self.job()))
        self.launcher("launched", t=0, nodes=nodes)

    def job(self):
        return {
            "schema": "distdbg.job/1",
            "id": self.dir.id,
            "name": "train",
            "argv": ["distdbg", "launch", "--nodes", str(self.nodes), "train.py", "--lr", "3e-4"],
            "cwd": "/home/me",
            "started": self.t0,
            "launcher": describe_launcher(),
            "topology": {"nodes": self.nodes, "nproc_per_node": self.per_node, "world_size": self.ranks},
            "worker_side": True,
            "environment": [
                {"name": "TORCH_FR_BUFFER_SIZE", "value": "2000", "origin": "preset default"},
                {"name": "NCCL_DEBUG", "value": "WARN", "origin": "preset default"},
                {"name": "WANDB_API_KEY", "value": "***", "origin": "inherited"},
                {"name": "PATH", "value": "/usr/local/bin:/usr/bin:/bin", "origin": "inherited"},
            ],
            "versions": {"distdbg": "0.1.0", "torch": "2.13.0", "python": "3.11.7"},
            "git": {"commit": "1b2c3d4", "dirty": False},
            "notes": [],
            "hidden_values": [],
        }

    def files(self, rank):
        return self.dir.attempt(self.attempt).rank(rank)

    def node_of(self, rank):
        return rank // self.per_node

    def ranks_of(self, node):
        return range(node * self.per_node, (node + 1) * self.per_node)

    def event(self, node, event, *, t, **fields):
        with self.node_files[node].events.open("a") as file:
            file.write(json.dumps({"t": self.t0 + t, "event": event, **fields}) + "\n")

    def launcher(self, event, *, t, **fields):
        with self.dir.events.open("a") as file:
            file.write(json.dumps({"t": self.t0 + t, "event": event, **fields}) + "\n")

    def fact(self, rank, **fields):
        fields["t"] = self.t0 + fields.get("t", 0)
        with self.files(rank).facts.open("a") as file:
            file.write(json.dumps({"rank": rank, **fields}) + "\n")

    def exits(self, rank, code, *, t=10.0, asked=None, because="", step=400, **fields):
        record = {
            "rank": rank, "local_rank": rank % self.per_node, "node_rank": self.node_of(rank),
            "host": f"node{self.node_of(rank)}", "attempt": self.attempt, "pid": 1000 + rank,
            "started": self.t0 + 1, "ended": self.t0 + t, "exit_code": code, "unknown_because": because,
            "asked_to_stop": None if asked is None else self.t0 + asked, "step": step, "phase": "backward",
            "rss": 3 << 30, **fields,
        }  # fmt: skip
        self.files(rank).exit.write_text(json.dumps(record))
        self.event(self.node_of(rank), "rank-exited", **{**record, "t": t})
        self.codes[rank] = code

    def raises(self, rank, kind, message, *, t=9.0, code=1, before="", line=88, **end):
        """The worker side reports an uncaught exception, and the rank ends a moment later.

        `before` is the part of a chain's text that stands above the last traceback.
        """
        text = before + traceback_text(kind, message, line=line)
        self.fact(rank, op="exception", uncaught=True, type=kind, message=message, traceback=text, t=t,
                  thread="MainThread", where=["/home/me/train.py", line, "step"])  # fmt: skip
        end.setdefault("t", t + 0.2)
        self.exits(rank, code, **end)

    def handles(self, rank, kind, message, *, t=9.0, thread="MainThread", traceback=""):
        """What a rank answers when its agent asks what it is handling."""
        text = traceback or traceback_text(kind, message)
        one = {"type": kind, "message": message, "traceback": text, "thread": thread,
               "where": ["/home/me/train.py", 88, "step"]}  # fmt: skip
        self.fact(rank, op="exceptions", id="death", t=t, threads=[one])

    def script_end(self, rank, how="returned", *, t=9.9, code=0, where=None):
        self.fact(rank, op="script-end", how=how, exit=code, where=where, t=t)

    def looks(self, count, figures=lambda rank, step: {}, *, every=10.0, steps=100):
        """What the agents recorded of their ranks every ten seconds; `figures` are those of a rank at a step."""
        for node, files in enumerate(self.node_files):
            with files.metrics.open("a") as file:
                for n in range(count):
                    ranks = [{"rank": r, "step": n * steps, "alive": True, **figures(r, n * steps)}
                             for r in self.ranks_of(node)]  # fmt: skip
                    file.write(json.dumps({"t": self.t0 + 1 + n * every, "event": "metrics", "ranks": ranks}) + "\n")

    def metrics(self, node, *, t, **fields):
        """One look of a node's agent."""
        with self.node_files[node].metrics.open("a") as file:
            file.write(json.dumps({"t": t, "event": "metrics", "ranks": [], **fields}) + "\n")

    def prints(self, rank, text, stream="stderr"):
        with self.files(rank).stream(stream).open("a", errors="surrogatepass") as file:
            file.write(text)

    def rest(self, code=0, *, t=11.0, asked=None, **fields):
        """Every rank that has no end yet ends so."""
        for rank in range(self.ranks):
            if rank not in self.codes:
                self.exits(rank, code, t=t, asked=asked, **fields)

    def closes(self, torchrun=None, *, oom_after=0, kernel=(), kernel_because="", own_pids=True):
        """The agents' last words; torchrun's code is 1 where a rank failed, unless it is given (by node too)."""
        failed = any(code != 0 for code in self.codes.values())
        for node in range(self.nodes):
            self.event(node, "kernel", t=12, messages=list(kernel), because=kernel_because, own_pids=own_pids)
            self.event(node, "cgroup", t=12, when="after", oom_kill=oom_after, limit=8 << 30)
            code = int(failed) if torchrun is None else torchrun[node] if isinstance(torchrun, dict) else torchrun
            self.event(node, "torchrun-exited", t=12, exit_code=code, reported={})
            self.event(node, "agent-finished", t=12, exit_code=code)
            self.launcher("agent-exited", t=12.1, node_rank=node, exit_code=code)
        self.launcher("agents-gone", t=12.2, exit_codes=[int(failed)] * self.nodes, cancelled_by=None)
        return self

    def evidence(self, attempt=None):
        return load_evidence(self.dir, attempt)

    def report(self, attempt=None):
        return build_report(self.evidence(attempt))
