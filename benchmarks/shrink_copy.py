"""What slicing a checkpoint costs: distdbg's byte ranges, safetensors' own safe_open + save_file, and load-and-save.

A Llama of 32 layers in 21 shards, two kept. Each way runs in a process of its own; wall seconds, seconds of CPU, bytes
read from the weights and the peak memory of the largest process. Importing torch is part of what a way needs. The last
rows are what people type, from_pretrained(num_hidden_layers=2) with save_pretrained, and the whole command: it probes
and verifies in a child process, which is in its seconds and its peak; these run in turn, and the ratio is the median of
the runs' ratios.

    python benchmarks/shrink_copy.py [--gb 1.0] [--runs 3] [--rows 128256]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

from distdbg.shrink.checkpoint.tensors import render_header

LAYERS, SHARDS = 32, 21
HEAD = 128

WAYS = {
    "distdbg, first two": """
from pathlib import Path
from distdbg.shrink.checkpoint.tensors import tensors_of
from distdbg.shrink.checkpoint.layer_names import all_renumbered
from distdbg.shrink.checkpoint.slicing import pieces
from distdbg.shrink.checkpoint.source import Folder
from distdbg.shrink.checkpoint.writing import output_files, write_files
source = Folder(Path(src))
taken, _ = pieces(tensors_of(source).values(), lambda name: all_renumbered(name, {"model.layers": KEPT}), {})
Path(dst).mkdir()
write_files(source, output_files(taken), Path(dst), lambda n: None)
print(source.bytes_read)
""",
    "safe_open + save_file": """
import json, os
from safetensors import safe_open
from safetensors.torch import save_file
places = json.load(open(src + "/model.safetensors.index.json"))["weight_map"]
out = {}
for shard in sorted(set(places.values())):
    names = [n for n, s in places.items() if s == shard and ("layers" not in n or int(n.split(".")[2]) in KEPT)]
    if names:
        with safe_open(src + "/" + shard, "pt") as file:
            out.update({n: file.get_tensor(n) for n in names})
os.mkdir(dst)
save_file(out, dst + "/model.safetensors", metadata={"format": "pt"})
print(sum(t.nbytes for t in out.values()))
""",
    "load all, save": """
import json, os
from safetensors.torch import load_file, save_file
places = json.load(open(src + "/model.safetensors.index.json"))["weight_map"]
everything = {}
for shard in sorted(set(places.values())):
    everything.update({n: t.clone() for n, t in load_file(src + "/" + shard).items()})
read = sum(t.nbytes for t in everything.values())
os.mkdir(dst)
out = {n: t for n, t in everything.items() if "layers" not in n or int(n.split(".")[2]) in KEPT}
save_file(out, dst + "/model.safetensors", metadata={"format": "pt"})
print(read)
""",
}
#: what people type today
TWO_LINES = """
import transformers
model = transformers.AutoModelForCausalLM.from_pretrained(src, num_hidden_layers=2, dtype="auto")
model.save_pretrained(dst)
print(sum(p.nbytes for p in model.parameters()))
"""
COMMON = "the user's two lines"
WAYS["distdbg, first and last"] = WAYS["distdbg, first two"].replace("KEPT", f"[0, {LAYERS - 1}]")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gb", type=float, default=1.0)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--rows", type=int, help="rows of the vocabulary; else eleven times the width")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="distdbg-bench-") as folder:
        source = Path(folder, "model")
        kept = make(source, options.gb, options.rows)
        print(f"{options.gb:g} GB in {SHARDS} shards, {LAYERS} layers; kept: {kept / 1e6:.1f} MB")
        print(f"{'way':<26}{'seconds':>10}{'CPU s':>8}{'MB read':>10}{'peak MB':>10}")
        for way, code in WAYS.items():
            results = [measure(code, source, Path(folder, f"out-{run}")) for run in range(options.runs)]
            for run in range(options.runs):
                subprocess.run(["rm", "-rf", str(Path(folder, f"out-{run}"))], check=True)
            show(way, results)
        rows: dict[str, list[Cost]] = {}
        for run in range(options.runs):  # in turn: a machine may have other things to do
            out = Path(folder, f"out-{run}")
            rows.setdefault(COMMON, []).append(measure(TWO_LINES, source, out / "two-lines"))
            rows.setdefault("the command, verified", []).append(command(source, out / "verified"))
            rows.setdefault("the command, --no-verify", []).append(command(source, out / "fast", "--no-verify"))
            subprocess.run(["rm", "-rf", str(out)], check=True)
        for way, results in rows.items():
            show(way, results, rows[COMMON])


@dataclass(frozen=True)
class Cost:
    wall: float
    cpu: float
    read: int
    peak: float


def show(way: str, results: list[Cost], beside: list[Cost] | None = None) -> None:
    wall, cpu = (statistics.median(values) for values in zip(*((r.wall, r.cpu) for r in results), strict=True))
    line = f"{way:<26}{wall:>10.2f}{cpu:>8.2f}{results[0].read / 1e6:>10.1f}{max(r.peak for r in results):>10.0f}"
    if beside is not None:
        ratios = sorted(a.wall / b.wall for a, b in zip(results, beside, strict=True))
        line += f"   x {statistics.median(ratios):.2f} wall ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        line += f", x {statistics.median(a.cpu / b.cpu for a, b in zip(results, beside, strict=True)):.2f} CPU"
    print(line)


def make(folder: Path, gigabytes: float, rows: int | None) -> int:
    """Write the checkpoint and its config; gives the bytes of two layers and of what is in no layer."""
    folder.mkdir()
    width = max(1, round((gigabytes * 1e9 / 2 / (LAYERS + 1) / 11) ** 0.5 / HEAD)) * HEAD
    inner, rows = round(width * 7 / 3 / HEAD) * HEAD, rows or 11 * width
    config = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": LAYERS, "hidden_size": width,
        "intermediate_size": inner, "num_attention_heads": width // HEAD, "num_key_value_heads": width // HEAD,
        "vocab_size": rows, "tie_word_embeddings": True, "dtype": "bfloat16",
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    layer = {f"self_attn.{n}_proj": (width, width) for n in "qkvo"}
    layer |= {f"mlp.{n}_proj": (inner, width) for n in ("gate", "up")} | {"mlp.down_proj": (width, inner)}
    layer |= {"input_layernorm": (width,), "post_attention_layernorm": (width,)}
    shapes = {f"model.layers.{i}.{n}.weight": shape for i in range(LAYERS) for n, shape in layer.items()}
    shapes |= {"model.embed_tokens.weight": (rows, width), "model.norm.weight": (width,)}
    sizes = {name: 2 * math.prod(shape) for name, shape in shapes.items()}
    names, places, block = list(shapes), {}, os.urandom(1 << 20)
    for shard in range(SHARDS):
        inside = names[shard * len(names) // SHARDS : (shard + 1) * len(names) // SHARDS]
        file = f"model-{shard + 1:05d}-of-{SHARDS:05d}.safetensors"
        places |= dict.fromkeys(inside, file)
        with (folder / file).open("wb") as out:
            out.write(render_header([(n, "BF16", shapes[n], sizes[n]) for n in inside]))
            for name in inside:  # by and by: a child's peak begins at what its parent's was
                for _ in range(sizes[name] >> 20):
                    out.write(block)
                out.write(block[: sizes[name] % (1 << 20)])
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return sum(size for n, size in sizes.items() if "layers" not in n or int(n.split(".")[2]) in (0, 1))


def command(source: Path, out: Path, *options: str) -> Cost:
    """As `measure`, of `distdbg shrink-model` as a person calls it."""
    words = [sys.executable, "-m", "distdbg", "shrink-model", str(source), str(out), "--layers", "2", *options]
    cost = waited_for(subprocess.Popen(words, stdout=subprocess.DEVNULL), time.monotonic())
    return replace(cost, read=json.loads((out / "shrink.json").read_text())["bytes_read"])


def measure(code: str, source: Path, out: Path) -> Cost:
    """Of a fresh process; it prints how many bytes it read."""
    text = f"src, dst, KEPT = {str(source)!r}, {str(out)!r}, [0, 1]\n{code}"
    begin = time.monotonic()
    process = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE)
    assert process.stdout is not None
    read = int(process.stdout.read())
    return replace(waited_for(process, begin), read=read)


def waited_for(process: subprocess.Popen[bytes], begin: float) -> Cost:
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return Cost(time.monotonic() - begin, usage.ru_utime + usage.ru_stime, 0, usage.ru_maxrss / 1e3)


if __name__ == "__main__":
    main()
