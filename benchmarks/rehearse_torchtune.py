"""How far the peaks of a rehearsal are from torchtune's published table of Llama 3.2 3B on one A100.

    python benchmarks/rehearse_torchtune.py                 one after another; two to six minutes each on two cores
    python benchmarks/rehearse_torchtune.py --only compile  those whose name has it
    python benchmarks/rehearse_torchtune.py --check         exit code 1 where one is over 7 % off

The recipe is torchtune's own, unmodified, at the commit of the publication, under `distdbg rehearse`. Replaced are the
tokenizer, by 128,000 words that mean nothing, the data set, by random text, and the weights, by zeros: memory does not
depend on them. The Python that runs this needs distdbg and what torchtune imports:

    pip install torch==2.13.0 triton==3.7.1 omegaconf tiktoken sentencepiece blobfile datasets kagglehub pillow
    pip install --no-deps torchao==0.8.0        of the month of the publication

torchtune publishes the peak of active memory (`peak_memory_active` of its metrics, in GiB), as is compared here. Its
first row depends on the lengths of its data set's texts and is left out, as are those whose kernels the simulated
device does not have (8-bit optimizers, QLoRA).
"""

from __future__ import annotations

import argparse
import json
import random
import re
import struct
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from rehearse_peaks import MOST_OFF, environment, off_by, write_tokenizer

TORCHTUNE = "https://github.com/pytorch/torchtune"
COMMIT = "1814feb17a9038e1a8053ce93111bd26774a8db6"
#: "Optimization flags" in the README of that commit.
TABLE = f"{TORCHTUNE}/blob/{COMMIT}/README.md"
GPU_MEMORY = "80GiB"
RECIPE = "recipes/full_finetune_single_device.py"
CONFIG = "recipes/configs/llama3_2/3B_full_single_device.yaml"
STEPS = 3


@dataclass(frozen=True)
class Published:
    """A row of the table: what it changes against the row above, and the peak of active memory."""

    name: str
    change: str
    active_gib: float


PUBLISHED = (
    Published("packed", "dataset.packed=True", 60.0),
    Published("compile", "compile=True", 51.0),
    Published("chunked-loss", "loss._component_=torchtune.modules.loss.CEWithChunkedOutputLoss", 42.9),
    Published("checkpointing", "enable_activation_checkpointing=True", 24.9),
    Published("optimizer-in-backward", "optimizer_in_bwd=True", 23.1),
    Published("offloading", "enable_activation_offloading=True", 21.8),
)
#: What all rows have, and what the config has otherwise than the first row. `fused` is what torchtune's other config of
#: this model has with AdamW; without it the optimizer's step alone needs 30.2 GiB, more than three rows have.
_ALL = (
    "tokenizer.max_seq_len=4096",
    "batch_size=2",
    "optimizer._component_=torch.optim.AdamW",
    "optimizer.fused=True",
    "optimizer_in_bwd=False",
    "gradient_accumulation_steps=1",
    "enable_activation_checkpointing=False",
    "loss._component_=torch.nn.CrossEntropyLoss",
    f"max_steps_per_epoch={STEPS}",
)
#: Run in torchtune's folder: names and shapes of the model's tensors as the hub stores them, as one line of JSON.
_SHAPES = """
import json, torch
from torchtune.models.convert_weights import tune_to_hf
from torchtune.models.llama3_2 import llama3_2_3b
with torch.device("meta"):
    state = dict(llama3_2_3b().state_dict())
print(json.dumps({n: list(t.shape) for n, t in tune_to_hf(state, 24, 8, 3072, 128).items()}))
"""


def prepare(folder: Path, checkout: Path | None) -> Path:
    """torchtune in `folder` / torchtune, and in `folder` / model weights, a tokenizer and a data set."""
    tune, model = folder / "torchtune", folder / "model"
    if checkout is None:
        subprocess.run(["git", "clone", "--quiet", "--filter=blob:none", TORCHTUNE, tune], check=True)
        subprocess.run(["git", "-C", tune, "checkout", "--quiet", COMMIT], check=True)
    else:
        tune.mkdir()
        packed = subprocess.run(["git", "-C", checkout, "archive", COMMIT], stdout=subprocess.PIPE, check=True)
        subprocess.run(["tar", "x", "-C", tune], input=packed.stdout, check=True)
    model.mkdir()
    command = [sys.executable, "-c", _SHAPES]
    told = subprocess.run(command, cwd=tune, env=environment(), stdout=subprocess.PIPE, text=True, check=True).stdout
    shapes: dict[str, list[int]] = json.loads(told.splitlines()[-1])
    names = sorted(shapes)
    for number, part in enumerate((names[: len(names) // 2], names[len(names) // 2 :]), 1):
        _write_zeros(model / f"model-0000{number}-of-00002.safetensors", {name: shapes[name] for name in part})
    (model / "config.json").write_text(
        json.dumps({"num_attention_heads": 24, "num_key_value_heads": 8, "hidden_size": 3072, "head_dim": 128})
    )
    write_tokenizer(model / "tokenizer.model")
    chosen = random.Random(0)
    words = ("the", "of", "and", "a", "to", "in", "is", "it")
    texts = (" ".join(chosen.choices(words, k=140)) for _ in range(600))
    lines = (json.dumps({"instruction": text[:150], "input": "", "output": text[150:]}) + "\n" for text in texts)
    (model / "data.json").write_text("".join(lines))
    return tune


def _write_zeros(path: Path, shapes: dict[str, list[int]]) -> None:
    """A safetensors file (huggingface.co/docs/safetensors) of bfloat16 zeros; a sparse file, so it takes no room."""
    header: dict[str, object] = {}
    end = 0
    for name, shape in shapes.items():
        begin, count = end, 1
        for size in shape:
            count *= size
        end += 2 * count
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)


def peak_of(name: str, changes: list[str], tune: Path) -> float | None:
    """GiB of active memory at most, as torchtune's own log has it. None where the recipe did not come to its end."""
    model, out = tune.parent / "model", tune.parent / "out" / name
    files = (f"tokenizer.path={model}/tokenizer.model", f"checkpointer.checkpoint_dir={model}",
             f"checkpointer.output_dir={out}", f"output_dir={out}", "dataset.source=json",
             f"dataset.data_files={model}/data.json")  # fmt: skip
    words = [sys.executable, "-m", "distdbg", "rehearse", "--json", "--gpus", "1", "--gpu-memory", GPU_MEMORY,
             "--run-dir", str(tune.parent / name), RECIPE, "--config", CONFIG, *files, *_ALL, *changes]  # fmt: skip
    env = {**environment(), "HF_HOME": str(tune.parent / "hf"), "PYTHONPATH": str(tune)}
    done = subprocess.run(words, cwd=tune, env=env, stdout=subprocess.PIPE, text=True, check=False)
    logs = "".join(path.read_text() for path in out.glob("*.txt"))
    found = re.findall(r"peak_memory_active:([\d.]+)", logs)
    return max(map(float, found)) if done.returncode == 0 and len(found) >= STEPS else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torchtune", type=Path, help="a git checkout that has the commit, in place of a clone")
    parser.add_argument("--only", default="", help="a part of the names of the rows")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    worst = 0.0
    print("| row | published | simulated | off |\n|---|---:|---:|---:|", flush=True)
    with tempfile.TemporaryDirectory(prefix="rehearse-torchtune-") as folder:
        tune = prepare(Path(folder), options.torchtune)
        changes: list[str] = []
        for row in PUBLISHED:
            changes.append(row.change)
            if options.only in row.name:
                found = peak_of(row.name, changes, tune)
                off, simulated = off_by(found, row.active_gib)
                worst = max(worst, off)
                print(f"| {row.name} | {row.active_gib} GiB | {simulated} |", flush=True)
    print(f"\nSource: {TABLE}")
    return int(options.check and worst > MOST_OFF)


if __name__ == "__main__":
    sys.exit(main())
