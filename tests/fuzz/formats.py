"""Every format that distdbg reads: seeds, how they are mutated, the reader, and the errors that it may raise."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from distdbg.collect.files import plain_pickle, recorder_child, snapshot_child
from distdbg.collect.files.plain_pickle import UnreadablePickle
from distdbg.collect.files.profile_merging import RankTrace, merge
from distdbg.collect.files.sources import read_source
from distdbg.collect.files.trace_files import TraceUnreadable, read_trace_file
from distdbg.collect.machine.nccl_ras import NoRas, _whole
from distdbg.collect.runs.explaining import load
from distdbg.collect.runs.log_reader import losses, merged_lines, stream_readers
from distdbg.collect.runs.run_evidence import load_evidence
from distdbg.collect.runs.run_snapshots import host_snapshots
from distdbg.collect.runs.run_status import run_status
from distdbg.collect.runs.run_tail import FileTail
from distdbg.diagnosis.verdict import build_report
from distdbg.errors import DistdbgError, EvidenceUnreadable, JobFileError, NothingToAnalyse, Refused
from distdbg.evidence.host.preflight import read_preflight
from distdbg.evidence.host.probe_lines import ProbeUnpacker
from distdbg.evidence.host.probe_lines import pack as pack_probe
from distdbg.evidence.logs.kernel import memory_kills
from distdbg.evidence.logs.slurm import failed_nodes, memory_lines, said_of
from distdbg.evidence.memory.answer import from_plain
from distdbg.evidence.recorder.calls import read_calls
from distdbg.evidence.recorder.log import Signatures
from distdbg.evidence.recorder.nccl_ras import behind, read_ras, unreachable
from distdbg.evidence.recorder.packed import Unpacker, pack
from distdbg.evidence.recorder.reading import read_recorder
from distdbg.evidence.run import RunEvidence
from distdbg.evidence.stacks.crash import fatal_error, terminate
from distdbg.evidence.stacks.tracebacks import last_chain
from distdbg.job_file import read_job_file
from distdbg.lint.linting import lint_text
from distdbg.lint.script.parsing import UnreadableScript
from distdbg.protocol.page import read_page
from distdbg.report.json_form import dumps
from distdbg.report.page.renderer import PageRenderer
from distdbg.report.preflight_report import preflight_report
from distdbg.report.run_document import run_document
from distdbg.report.text.preflight_text import render_preflight
from distdbg.report.text.renderer import TextRenderer
from distdbg.report.text.screen import Screen
from distdbg.rundir import RunDir
from distdbg.shrink.checkpoint.config_file import read_config
from distdbg.shrink.checkpoint.source import Folder
from distdbg.shrink.checkpoint.tensors import PREFIX, header_length, parse_header, render_header, tensors_of
from distdbg.worker.page import PageWriter
from tests.collect.files.test_snapshot_files import small as small_snapshot
from tests.collect.files.test_trace_files import small as small_trace
from tests.diagnosis.nodes.test_preflight import made
from tests.evidence.logs.test_job import LOG
from tests.evidence.logs.test_nccl import INFO, WATCHDOG, completion
from tests.evidence.recorder.test_log import dump, entry
from tests.evidence.recorder.test_nccl_ras import PAIR, WORLD, ras_answer
from tests.evidence.stacks.test_gdb_text import LISTED as GDB
from tests.evidence.stacks.test_stack_texts import TEXT as PYSPY
from tests.fuzz import mutations
from tests.fuzz.mutations import Mutation
from tests.made_run import MadeRun, traceback_text

Reader = Callable[[bytes], object]


@dataclass(frozen=True)
class Format:
    """`seeds` are valid inputs. `read` raises nothing but `allowed`; `weight` is its share of the budget."""

    seeds: Callable[[], list[bytes]]
    mutate: Mutation
    read: Reader
    allowed: tuple[type[BaseException], ...] = ()
    weight: int = 1


@cache
def folder() -> Path:
    """One for the process; test_fuzz.py removes it."""
    return Path(tempfile.mkdtemp(prefix="distdbg-fuzz-"))


def _written(name: str, data: bytes) -> Path:
    path = folder() / name
    path.write_bytes(data)
    return path


def render_everywhere(evidence: RunEvidence, *, page: bool = False) -> None:
    """A verdict in each form. What a check raises becomes an Unknown there: here it is a failure."""
    report = build_report(evidence)
    for unknown in report.unknown:
        assert "please report it" not in unknown.because, unknown
    TextRenderer().render(run_document(report)).encode()
    json.loads(dumps(report))
    if page:
        PageRenderer().render(run_document(report, evidence, whole=True))


# -- recorders, snapshots, traces ---------------------------------------------------------------------------------

_GROUPS = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}, "1": {"desc": "tp", "ranks": "[0-3]"}}
_RECORDER = dump(
    entry(1, state="completed", retired=True), entry(2), entry(1, "nccl:all_gather", group=("1", "tp"), pg_id=3),
    entry(5, "nccl:send 0->1", is_p2p=True), groups=_GROUPS,
)  # fmt: skip


def _recorder(data: bytes) -> None:
    signatures = Signatures()
    log = read_recorder(recorder_child._loaded(data), signatures)
    if log is None:
        raise UnreadablePickle
    head, _, body = pack(log, signatures, 0).partition(b"\n")
    again = Unpacker(Signatures()).unpack(json.loads(head), body)
    assert again.groups.keys() == log.groups.keys()
    assert list(again.losses()) == list(log.losses())


class _Unlimited(snapshot_child.Content):
    """The reader's own limits are those of a process of its own; here each input has the test's."""

    def __init__(self) -> None: ...

    def add(self, length: int) -> None: ...


def _snapshot(data: bytes) -> None:
    for device in json.loads(json.dumps(snapshot_child.read(str(_written("s.pickle", data)), 40, _Unlimited()))):
        from_plain(device)


def _plain_pickle(data: bytes) -> None:
    plain_pickle.load(io.BufferedReader(io.BytesIO(data)))


def _trace(data: bytes) -> None:
    read_trace_file(_written("rank0.json", data), "rank0.json")


def _merged(data: bytes) -> None:
    other = _written("rank1.json", small_trace(2).text.encode())
    traces = [RankTrace(0, _written("rank0.json", data), "a"), RankTrace(1, other, "b")]
    merge(traces, folder() / "merged.json.gz", lambda _: None)


# -- what `explain` is given --------------------------------------------------------------------------------------


def _explained(name: str) -> Reader:
    def read(data: bytes) -> None:
        render_everywhere(load([_written(name, data)]))

    return read


_STACKS = json.dumps([
    {"pid": 9, "thread_id": 1, "thread_name": "MainThread", "os_thread_id": 9, "active": True, "owns_gil": False,
     "frames": [{"name": "all_reduce", "filename": "/v/site-packages/torch/distributed/distributed_c10d.py",
                 "module": None, "short_filename": "x", "line": 3, "locals": [{"name": "op", "repr": "SUM"}]},
                {"name": "<module>", "filename": "/job/train.py", "line": 7, "locals": None}]},
]).encode()  # fmt: skip


# -- a run's files ------------------------------------------------------------------------------------------------


@cache
def _run() -> MadeRun:
    run = MadeRun(folder())
    run.launcher("node-clock", t=0.5, node_rank=0, host="node0", least_s=7200.0, most_s=7200.1)
    run.raises(2, "ValueError", "boom", t=9.0)
    run.handles(1, "KeyError", "'x'")
    run.fact(0, kind="group", name="tp", ranks={"first": 0, "step": 1, "count": 2})
    run.fact(0, kind="gradient-layers", optimizer=0, table=0, layers=["a", "b"], kinds=["w", "w"], rows={"0": 4})
    run.fact(0, kind="guard", guard="missing-zero-grad", step=3, where=["/home/me/train.py", 4, "main"])
    run.fact(0, kind="init", backend="nccl")
    run.fact(0, op="model", without=1, parameters=9, names=["a.b"], reduces=True)
    run.files(0).gradients.write_text(
        json.dumps({"op": "gradients", "step": 11, "optimizer": 0, "table": 0, "total": 1.0, "gradient": [1.0, None],
                    "weight": [1.0, 2.0], "zeros": [0.0, 0.5], "dead": {"0": 1}, "samples": 2}) + "\n"
    )  # fmt: skip
    run.files(0).memory_lines.write_text(
        "".join(json.dumps({"step": n, "t": run.t0 + n, "allocated": n << 20, "reserved": 9 << 20, "rss": n << 21,
                            "devices": {"0": {"allocated": n << 20}}}) + "\n" for n in range(9))
    )  # fmt: skip
    run.files(2).error.write_text(
        json.dumps({"message": {"message": "ValueError: boom", "extraInfo": {
            "py_callstack": traceback_text("ValueError", "boom"), "timestamp": "1790000009"}}})
    )  # fmt: skip
    run.looks(4, lambda rank, step: {"rss": step << 20, "phases": {"data": 3, "other": 4},
                                     "step_times": {"median": 0.1, "low": 0.1, "high": 0.2, "windows": 9}})  # fmt: skip
    run.prints(2, traceback_text("ValueError", "boom"))
    run.rest(-15, t=11.0, asked=9.5)
    run.closes()
    dump_folder = run.dir.attempt(1).folder / "dumps" / "20260101T000000Z-hang"
    for name in ("nodes", "stacks", "recorder", "calls"):
        (dump_folder / name).mkdir(parents=True)
    (dump_folder / "manifest.json").write_text(
        json.dumps({"schema": "distdbg.dump/1", "t": run.t0 + 9, "reason": "hang", "world_size": 4, "looks": 1,
                    "stalled": {"quiet_s": 30.0}, "ranks": {"0": {}, "3": {"failed": "gone"}}})
    )  # fmt: skip
    looks = [{"t": run.t0 + 9, "process": {"state": "S", "wchan": "futex", "threads": 9},
              "page": {"step": 3, "phase": "backward", "calls": 9}, "stacks": {"file": "stacks/00000.0.json"},
              "native": {"file": "stacks/00000.0.json"}, "recorder": {"file": "recorder/00000.0.json"},
              "children": {"77": {"state": "S", "comm": "python"}}}]  # fmt: skip
    (dump_folder / "nodes" / "0000.json").write_text(
        json.dumps({"node_rank": 0, "host": "node0", "sources": {"/job/train.py": "sources/train.py"},
                    "ranks": [{"rank": 0, "pid": 9, "looks": looks}, {"rank": 1, "pid": 10, "looks": looks}]})
    )  # fmt: skip
    (dump_folder / "stacks" / "00000.0.json").write_bytes(_STACKS)
    (dump_folder / "recorder" / "00000.0.json").write_text(json.dumps(_RECORDER))
    return run


def _run_file(name: str) -> tuple[Callable[[], list[bytes]], Reader]:
    """A run or its dump in which one file is another."""

    def seeds() -> list[bytes]:
        return [(_run().dir.path / name).read_bytes()]

    def read(data: bytes) -> None:
        run = _run().dir
        path = run.path / name
        (original,) = seeds()
        try:
            path.write_bytes(data)
            evidence = load_evidence(run)
            render_everywhere(evidence, page=len(data) % 8 == 0)
            run_status(run)
            losses(run.attempts()[-1])
            FileTail(path).lines()
            list(FileTail(path).objects())
            if "dumps" in name:
                render_everywhere(load([path.parent if path.name == "manifest.json" else path.parent.parent]))
        finally:
            path.write_bytes(original)

    return seeds, read


def _of_run(name: str, mutate: Mutation) -> Format:
    seeds, read = _run_file(name)
    return Format(seeds, mutate, read, (DistdbgError,), weight=3)


# -- the rest -----------------------------------------------------------------------------------------------------


def _index(data: bytes) -> None:
    run = RunDir(folder() / "logs")
    files = run.attempt(1).rank(0)
    files.folder.mkdir(parents=True, exist_ok=True)
    files.stdout.write_bytes(b"one\ntwo \xff\n" * 40)
    files.index("stdout").write_bytes(data)
    lines = list(merged_lines(stream_readers(run.attempt(1), [0])))
    assert len(lines) == 80


def _page() -> list[bytes]:
    path = folder() / "page"
    PageWriter(str(path), 3, 1).user_step(7)
    return [path.read_bytes()]


def _read_page(data: bytes) -> None:
    page = read_page(data)
    if page is not None:
        assert page.last_event_ns >= 0
        str(page.phase)


def _host_snapshot(data: bytes) -> None:
    run = RunDir(folder() / "host")
    memory = run.attempt(1).rank(0).memory
    memory.mkdir(parents=True, exist_ok=True)
    (memory / "step000003-001.host.json.gz").write_bytes(data)
    found, unknown = host_snapshots(run, 1)
    assert len(found) + len(unknown) == 1


_HOST = {"schema": "distdbg.host-memory/1", "rank": 0, "step": 3, "why": "asked", "figures": {"rss": 9},
         "tensors": {"count": 1, "with_graph": 0}, "groups": [{"kind": "p", "shape": [2, 3], "dtype": "torch.float32",
         "device": "cpu", "count": 1, "bytes": {"cpu": 24}}], "largest": [{"kind": "p", "name": "w"}]}  # fmt: skip


def _header(data: bytes) -> None:
    length = header_length("f", data[:PREFIX], len(data))
    parse_header("f", data[PREFIX : PREFIX + length], len(data))


def _safetensors(rng: object, seed: bytes) -> bytes:
    """The header's JSON mutated, with its true length in front of it."""
    length = int.from_bytes(seed[:PREFIX], "little")
    text = mutations.of_json(rng, seed[PREFIX : PREFIX + length])  # type: ignore[arg-type]
    return len(text).to_bytes(PREFIX, "little") + text + seed[PREFIX + length :]


def _model_file(name: str) -> Reader:
    def read(data: bytes) -> None:
        place = folder() / f"model-{name}"
        place.mkdir(exist_ok=True)
        (place / name).write_bytes(data)
        (place / "x.safetensors").write_bytes(render_header([("a", "F32", (2,), 8)]) + bytes(8))
        read_config(Folder(place)) if name == "config.json" else tensors_of(Folder(place))

    return read


def _preflight(data: bytes) -> None:
    try:
        raw = json.loads(data)
    except (ValueError, RecursionError):
        return
    evidence = read_preflight(raw if isinstance(raw, dict) else {})
    report = preflight_report(evidence)
    for unknown in report.unknown:
        assert "please report it" not in unknown.because, unknown
    render_preflight(report, evidence, Screen.of(color=False, width=100))
    json.loads(dumps(report))


def _probe(data: bytes) -> None:
    unpacker = ProbeUnpacker()
    for line in data.decode("utf-8", "replace").split("\n"):
        unpacker.take(line)


def _ras(data: bytes) -> None:
    communicators = read_ras(_whole(data))
    behind(communicators)
    unreachable(communicators)


def _tracebacks(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    last_chain(text)
    fatal_error(text)
    terminate(text)


def _slurm(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    failed_nodes(text)
    memory_lines(text)
    said_of(text.split("\n"), 0, "node0", 2)


def _lint(name: str) -> Reader:
    def read(data: bytes) -> None:
        source = read_source(_written(name, data))
        if source.text is not None:
            lint_text(source.path, source.text)

    return read


_SCRIPT = b"""import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

def main(rank):
    dist.init_process_group("nccl")
    model = DDP(torch.nn.Linear(4, 4).cuda())
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        for x in loader:
            loss = model(x).sum()
            loss.backward()
            opt.step()
        if rank == 0:
            dist.barrier()
            torch.save(model.state_dict(), f"ckpt-{epoch}.pt")

if __name__ == "__main__":
    main(int(os.environ["RANK"]))
"""
_JOB = b"""script: train.py
args: [--lr, 0.1]
nodes: 2
nproc-per-node: 4
name: first
env:
  NCCL_DEBUG: INFO
  OMP_NUM_THREADS: 8
"""
_KERNEL = """oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,oom_memcg=/job,task=python3,pid=7,uid=0
Memory cgroup out of memory: Killed process 7 (python3) total-vm:1000kB, anon-rss:2048kB, file-rss:0kB, shmem-rss:0kB
NVRM: Xid (PCI:0000:3b:00): 79, pid=7, name=python3, GPU has fallen off the bus.
"""
_SLURM = """slurmstepd: error: Detected 2 oom_kill events in StepId=7.0. Some of the step tasks have been OOM Killed.
srun: error: node1: tasks 4-7: Killed
slurmstepd: error: *** STEP 7.0 ON node0 CANCELLED AT 2026-11-21T06:20:14 DUE TO TIME LIMIT ***
slurmstepd: error: *** JOB 7 ON node0 CANCELLED AT 2026-11-21T06:20:14 DUE TO NODE FAILURE, SEE SLURMCTLD LOG ***
"""
_CRASH = """Fatal Python error: Segmentation fault

Current thread 0x00007f (most recent call first):
  File "/job/train.py", line 7 in step
  File "/job/train.py", line 9 in <module>
terminate called after throwing an instance of 'c10::Error'
  what():  boom
"""


def _text(*seeds: str) -> Callable[[], list[bytes]]:
    return lambda: [seed.encode() for seed in seeds]


def _json(*values: object) -> Callable[[], list[bytes]]:
    return lambda: [json.dumps(value).encode() for value in values]


def _formats() -> dict[str, Format]:
    trace = small_trace(2).text
    header = render_header([("a", "F32", (2, 2), 16), ("b", "BF16", (4,), 8)]) + bytes(24)
    notebook = {"cells": [{"cell_type": "code", "source": ["import torch\n", "x = 1\n"]}]}
    dumps_ = "attempts/1/dumps/20260101T000000Z-hang"
    return {
        "recorder-pickle": Format(lambda: [pickle.dumps(_RECORDER, 2)], mutations.of_pickle, _recorder,
                                  (UnreadablePickle, MemoryError)),
        "recorder-json": Format(_json(_RECORDER), mutations.of_json, _recorder, (UnreadablePickle,)),
        "plain-pickle": Format(lambda: [pickle.dumps(_RECORDER, 4)], mutations.of_bytes, _plain_pickle,
                               (UnreadablePickle, MemoryError)),
        "snapshot": Format(lambda: [pickle.dumps(small_snapshot(), 4)], mutations.of_pickle, _snapshot,
                           (UnreadablePickle, MemoryError), weight=3),
        "snapshot-packed": Format(lambda: [gzip.compress(pickle.dumps(small_snapshot(), 4))],
                                  mutations.packed(mutations.of_pickle), _snapshot,
                                  (UnreadablePickle, MemoryError), weight=2),
        "trace": Format(_text(trace), mutations.of_json, _trace, (TraceUnreadable,), weight=2),
        "trace-text": Format(_text(trace), mutations.of_text, _trace, (TraceUnreadable,)),
        "trace-packed": Format(lambda: [gzip.compress(trace.encode())], mutations.packed(mutations.of_json), _trace,
                               (TraceUnreadable,), weight=2),
        "trace-merged": Format(_text(trace), mutations.of_json, _merged, (EvidenceUnreadable, Refused), weight=2),
        "pyspy-text": Format(_text(PYSPY), mutations.of_text, _explained("rank0.txt"), (DistdbgError,)),
        "gdb-text": Format(_text(GDB), mutations.of_text, _explained("rank0.txt"), (DistdbgError,)),
        "pyspy-json": Format(lambda: [_STACKS], mutations.of_json, _explained("rank0.json"), (DistdbgError,)),
        "log": Format(_text(LOG, WATCHDOG), mutations.of_text, _explained("torchrun.log"), (DistdbgError,), weight=2),
        "nccl-log": Format(_text(INFO + completion("node0", "10.0.0.2"), INFO + completion("n", "10.0.0.2", "new")),
                           mutations.of_text, _explained("nccl_rank3.log"), (DistdbgError,)),
        "nccl-ras": Format(_json(ras_answer(WORLD, PAIR)), mutations.of_json, _ras, (NoRas,)),
        "run-job": _of_run("job.json", mutations.of_json),
        "run-events": _of_run("events.jsonl", mutations.of_json_lines),
        "run-node-events": _of_run("attempts/1/nodes/0000-node0/events.jsonl", mutations.of_json_lines),
        "run-metrics": _of_run("attempts/1/nodes/0000-node0/metrics.jsonl", mutations.of_json_lines),
        "run-exit": _of_run("attempts/1/ranks/00002/exit.json", mutations.of_json),
        "run-error": _of_run("attempts/1/ranks/00002/error.json", mutations.of_json),
        "run-facts": _of_run("attempts/1/ranks/00000/facts.jsonl", mutations.of_json_lines),
        "run-exceptions": _of_run("attempts/1/ranks/00002/facts.jsonl", mutations.of_json_lines),
        "run-memory": _of_run("attempts/1/ranks/00000/memory.jsonl", mutations.of_json_lines),
        "run-gradients": _of_run("attempts/1/ranks/00000/gradients.jsonl", mutations.of_json_lines),
        "run-stderr": _of_run("attempts/1/ranks/00002/stderr.log", mutations.of_text),
        "dump-manifest": _of_run(f"{dumps_}/manifest.json", mutations.of_json),
        "dump-node": _of_run(f"{dumps_}/nodes/0000.json", mutations.of_json),
        "dump-stacks": _of_run(f"{dumps_}/stacks/00000.0.json", mutations.of_json),
        "dump-recorder": _of_run(f"{dumps_}/recorder/00000.0.json", mutations.of_json),
        "log-index": Format(_text("1700000000000000000 0 40\n1700000001000000000 40 40\n"), mutations.of_text, _index),
        "page": Format(_page, mutations.of_bytes, _read_page),
        "calls": Format(lambda: [bytes(24) + b"\1" * 240], mutations.of_bytes,
                        lambda d: read_calls(d, "a\tb\t1\tc\td\te"), (ValueError,)),
        "call-sites": Format(_text("all_reduce\t/job/a.py\t7\tstep\ttorch.float32\t0\n"), mutations.of_text,
                             lambda d: read_calls(b"\1" * 4096, d.decode("utf-8", "replace"))),
        "host-snapshot": Format(lambda: [gzip.compress(json.dumps(_HOST).encode())],
                                mutations.packed(mutations.of_json), _host_snapshot),
        "safetensors": Format(lambda: [header], _safetensors, _header, (EvidenceUnreadable,)),
        "safetensors-bytes": Format(lambda: [header], mutations.of_bytes, _header, (EvidenceUnreadable,)),
        "model-config": Format(_json({"model_type": "llama", "num_hidden_layers": 4, "auto_map": {"A": "b.C"}}),
                               mutations.of_json, _model_file("config.json"), (EvidenceUnreadable, NothingToAnalyse)),
        "model-index": Format(_json({"metadata": {"total_size": 1}, "weight_map": {"a": "x.safetensors"}}),
                              mutations.of_json, _model_file("model.safetensors.index.json"), (DistdbgError,)),
        "job-yaml": Format(lambda: [_JOB], mutations.of_text, lambda d: read_job_file(_written("job.yaml", d)),
                           (JobFileError,)),
        "preflight": Format(_json(made(2, 1)), mutations.of_json, _preflight, weight=2),
        "probe-lines": Format(_text("hello\n" + "\n".join(pack_probe("n", "looked", made(1)))), mutations.of_text,
                              _probe),
        "kernel-log": Format(_text(_KERNEL), mutations.of_text,
                             lambda d: memory_kills((line, 1.0) for line in d.decode("utf-8", "replace").split("\n"))),
        "tracebacks": Format(_text(traceback_text("ValueError", "boom") * 2, _CRASH), mutations.of_text, _tracebacks),
        "slurm-log": Format(_text(_SLURM), mutations.of_text, _slurm),
        "script": Format(lambda: [_SCRIPT], mutations.of_text, _lint("a.py"), (UnreadableScript,), weight=2),
        "notebook": Format(_json(notebook), mutations.of_json, _lint("a.ipynb"), (UnreadableScript,)),
    }  # fmt: skip


FORMATS = _formats()


def remove_folder() -> None:
    shutil.rmtree(folder(), ignore_errors=True)
