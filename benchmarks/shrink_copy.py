"""What slicing a checkpoint costs: distdbg's byte ranges, safetensors' own safe_open + save_file, and load-and-save.

A Llama of 48 layers in 21 shards, two kept. Each way runs in a process of its own; wall seconds, bytes read from the
weights and peak memory. Importing torch is part of what a way needs. The last rows are what people type,
from_pretrained(num_hidden_layers=2) with save_pretrained, and the whole command: it probes and verifies in a child
process, which is in its seconds and its peak.

    python benchmarks/shrink_copy.py [--gb 1.0] [--runs 3]
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
from pathlib import Path

from distdbg.shrink.checkpoint.tensors import render_header

LAYERS, SHARDS = 48, 21
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
WAYS["distdbg, first and last"] = WAYS["distdbg, first two"].replace("KEPT", "[0, 47]")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gb", type=float, default=1.0)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="distdbg-bench-") as folder:
        source = Path(folder, "model")
        kept = make(source, options.gb)
        print(f"{options.gb:g} GB in {SHARDS} shards, {LAYERS} layers; kept: {kept / 1e6:.1f} MB")
        print(f"{'way':<26}{'seconds (median)':>18}{'MB read':>10}{'peak MB':>10}")
        for way, code in WAYS.items():
            results = [measure(code, source, Path(folder, f"out-{run}")) for run in range(options.runs)]
            for run in range(options.runs):
                subprocess.run(["rm", "-rf", str(Path(folder, f"out-{run}"))], check=True)
            show(way, results)
        rows: dict[str, list[tuple[float, int, float]]] = {}
        for run in range(options.runs):  # in turn: a machine may have other things to do
            out = Path(folder, f"out-{run}")
            rows.setdefault("the user's two lines", []).append(measure(TWO_LINES, source, out / "two-lines"))
            rows.setdefault("the command, verified", []).append(command(source, out / "verified"))
            rows.setdefault("the command, --no-verify", []).append(command(source, out / "fast", "--no-verify"))
        for way, results in rows.items():
            show(way, results)


def show(way: str, results: list[tuple[float, int, float]]) -> None:
    seconds = statistics.median(r[0] for r in results)
    print(f"{way:<26}{seconds:>18.2f}{results[0][1] / 1e6:>10.1f}{max(r[2] for r in results):>10.0f}")


def make(folder: Path, gigabytes: float) -> int:
    """Write the checkpoint and its config; gives the bytes of two layers and of what is in no layer."""
    folder.mkdir()
    width = max(1, round((gigabytes * 1e9 / 2 / (LAYERS + 1) / 11) ** 0.5 / HEAD)) * HEAD
    inner, rows = round(width * 7 / 3 / HEAD) * HEAD, 11 * width
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


def command(source: Path, out: Path, *options: str) -> tuple[float, int, float]:
    """As `measure`, of `distdbg shrink-model` as a person calls it."""
    begin = time.monotonic()
    words = [sys.executable, "-m", "distdbg", "shrink-model", str(source), str(out), "--layers", "2", *options]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    seconds = time.monotonic() - begin
    return seconds, json.loads((out / "shrink.json").read_text())["bytes_read"], usage.ru_maxrss / 1e3


def measure(code: str, source: Path, out: Path) -> tuple[float, int, float]:
    """(wall seconds, bytes that the way says it read, peak resident MB) of a fresh process."""
    text = f"src, dst, KEPT = {str(source)!r}, {str(out)!r}, [0, 1]\n{code}"
    begin = time.monotonic()
    process = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE)
    assert process.stdout is not None
    read = int(process.stdout.read())
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return time.monotonic() - begin, read, usage.ru_maxrss / 1e3


if __name__ == "__main__":
    main()
