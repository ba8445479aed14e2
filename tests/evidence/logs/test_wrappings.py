"""One traceback in every usual wrapping, and in every pair of prefixes, has its rank and its line."""

import bz2
import gzip
import json
import lzma
import shutil
import subprocess

import pytest

from distdbg.collect.files.foreign_files import ForeignFiles
from distdbg.evidence.logs.prefixes import ROWS, strip

TRACEBACK = (
    "Traceback (most recent call last):",
    '  File "/w/train.py", line 8, in step',
    "    x()",
    "ValueError: planted",
)
ELSE = "epoch 1 begins"


def each(prefix, *, other=""):
    """Each line with the prefix, below a line of another process."""
    return "\n".join([other + ELSE, *(prefix + line for line in TRACEBACK)]) + "\n"


def as_json(key, **more):
    return "".join(json.dumps({key: line + "\n", **more}) + "\n" for line in (ELSE, *TRACEBACK))


TABLE = """[0]:
  time      : 2024-05-01_10:00:09
  host      : n7
  rank      : 3 (local_rank: 3)
  exitcode  : 1 (pid: 41)
"""
T = "2024-05-01"
RANK_3, HOST, LOCAL, NOBODY = {"rank": 3}, {"host": "node7"}, {"local_rank": 3}, {}
#: name of the log, its text, and what is known of the process: as the list of usual wrappings has them
WRAPPED = {
    "excepthook": ("job.log", each("[rank3]: "), RANK_3),
    "tee": ("job.log", each("[default3]:"), LOCAL),
    "tee, one node": ("job.log", "torchrun --nnodes=1\n" + each("[default3]:"), RANK_3),
    "tee and excepthook": ("job.log", each("[default3]:[rank3]: "), RANK_3),
    "tee and a logger's time": ("job.log", each(f"[default3]:{T} 10:00:00,1 [rank3]: "), RANK_3),
    "table below": ("job.log", each("") + "Root Cause (first observed failure):\n" + TABLE, RANK_3),
    "table and tee": ("job.log", each("[default3]:") + TABLE, RANK_3),
    "srun --label": ("job.log", each("3: ", other="1: "), RANK_3),
    "slurm task file": ("slurm-4711_3.out", each(""), RANK_3),
    "slurm node file": ("slurm-4711-node7.out", each(""), HOST),
    "several steps": ("job.log", "0: step 1 done\nsrun: Step 4711.1 begins\n" + each("3: "), RANK_3),
    "mpirun": ("job.log", each("[1,3]<stderr>:", other="[1,0]<stdout>:"), RANK_3),
    "pdsh": ("job.log", each("node7: ", other="node6: "), HOST),
    "deepspeed": ("job.log", each("worker-1: ", other="worker-0: "), {"host": "worker-1"}),
    "docker": ("job.log", as_json("log", stream="stderr", time=f"{T}T10:00:00Z"), NOBODY),
    "docker and rank": ("job.log", as_json("log", stream="stderr", rank=3), RANK_3),
    "cri": ("job.log", each(f"{T}T10:00:00.123456789Z stderr F [rank3]: "), RANK_3),
    "kubectl --prefix": ("job.log", each("[pod/train-3/pytorch] "), {"host": "train-3"}),
    "kubetail": ("job.log", each("[train-worker-3] "), {"host": "train-worker-3"}),
    "journald": ("job.log", each("May 01 10:00:00 node7 python[41]: "), HOST),
    "shipper, message": ("job.log", as_json("message", rank=3), RANK_3),
    "shipper, msg": ("job.log", as_json("msg", global_rank=3), RANK_3),
    "shipper, body": ("job.log", as_json("body", hostname="node7"), HOST),
    "ray": ("job.log", each("(RayTrainWorker pid=615, ip=10.0.0.6) "), {"host": "10.0.0.6", "pid": 615}),
    "lightning": ("job.log", each("[rank: 3] "), RANK_3),
    "Rank": ("job.log", each("[Rank 3] "), RANK_3),
    "logging": ("job.log", each(f"{T} 10:00:00,123 - train - ERROR - [rank 3] "), RANK_3),
    "time before": ("job.log", each(f"{T}T10:00:00Z [rank3]: "), RANK_3),
    "time after": ("job.log", each(f"[rank3]: [{T} 10:00:00,1] [ERROR] "), RANK_3),
    "colour": ("job.log", each("\x1b[31m[rank3]:\x1b[0m "), RANK_3),
    "glued bar": ("job.log", "\r 50%|##  | 1/2 [00:01<00:01, 1.0it/s]".join(["", each("[rank3]: ")]), RANK_3),
    "CR LF": ("job.log", each("[rank3]: ").replace("\n", "\r\n"), RANK_3),
    "numbered": ("job.log", "".join(f"{n:6}\t[rank3]: {line}\n" for n, line in enumerate(TRACEBACK)), RANK_3),
    "notebook": ("job.log", "".join(f"      {json.dumps(line + chr(10))},\n" for line in TRACEBACK), NOBODY),
    "rank in the file's name": ("train_rank3.log", each(""), RANK_3),
    "host in the file's name": ("node7.log", each(""), HOST),
    "a folder of torchrun": ("none_x/attempt_0/3/stderr.log", each(""), LOCAL),
}  # fmt: skip


def process_in(folder, name, data):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    files = ForeignFiles()
    files.read([(path, name)])
    evidence = files.evidence()
    return next(rank for rank in (*evidence.ranks, *evidence.unattributed) if rank.exceptions)


@pytest.mark.parametrize("wrapping", WRAPPED)
def test_every_usual_wrapping(tmp_path, wrapping):
    name, text, known = WRAPPED[wrapping]
    process = process_in(tmp_path, name, text.encode())
    (error,) = process.exceptions
    assert (error.type, error.message.strip(), error.where) == ("ValueError", "planted", ("/w/train.py", 8, "step"))
    assert process.rank == known.get("rank", -1)
    assert {key: getattr(process, key) for key in known} == known


@pytest.mark.parametrize("packed", ["gzip", "xz", "bzip2", "zstd", "UTF-16", "UTF-16 without a mark"])
def test_every_packing(tmp_path, packed):
    text = each("[rank3]: ")
    if packed == "zstd" and shutil.which("zstd") is None:
        pytest.skip("not possible here: there is no zstd")
    data = {
        "gzip": lambda: gzip.compress(text.encode()),
        "xz": lambda: lzma.compress(text.encode()),
        "bzip2": lambda: bz2.compress(text.encode()),
        "zstd": lambda: subprocess.run(["zstd", "-qc"], input=text.encode(), capture_output=True, check=True).stdout,
        "UTF-16": lambda: text.encode("utf-16"),
        "UTF-16 without a mark": lambda: text.encode("utf-16-le"),
    }[packed]()
    process = process_in(tmp_path, "job.log", data)
    assert (process.rank, process.exceptions[0].type) == (3, "ValueError")


def test_two_ranks_at_once_without_marks_have_no_frames(tmp_path):
    process = process_in(tmp_path, "job.log", "".join(f"{line}\n{line}\n" for line in TRACEBACK).encode())
    assert process.rank == -1 and process.exceptions[0].type == "ValueError" and process.exceptions[0].where is None


def _prefix(row):
    """What the row's sample has before its text."""
    text, _ = strip(row.sample)
    return row.sample.removesuffix(text)


#: What is left of a format (dash), glued to a text (progress) or drawn around it (box) stands at its own place only.
_FREE = [row for row in ROWS if row.name not in ("dash", "progress", "box")]
#: Of these a line has one: a number or a host and then another is the text of a message.
_ONE = {row.name for row in ROWS if row.not_again}


@pytest.mark.parametrize("outer", _FREE, ids=lambda row: row.name)
def test_every_pair_of_prefixes_in_both_orders(outer):
    for inner in _FREE:
        prefixes = _prefix(outer) + _prefix(inner)
        if inner is outer or inner.name in _ONE or "rank" in prefixes.lower():
            continue
        for line in TRACEBACK:
            text, facts = strip(f"{prefixes}[rank3]: {line}")
            assert (facts.rank, text) == (3, line), prefixes
