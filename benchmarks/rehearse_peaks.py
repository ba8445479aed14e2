"""How far the peaks of simulated devices are from published measurements of real GPUs.

    python benchmarks/rehearse_peaks.py                     one after another; one to five minutes each on two cores
    python benchmarks/rehearse_peaks.py --only 8B-compile   those whose name has it
    python benchmarks/rehearse_peaks.py --all-ranks         with `distdbg rehearse`: all ranks, up to 16
    python benchmarks/rehearse_peaks.py --check             exit code 1 where one is over 7 % off

What runs is torchtitan itself, unmodified, at the commit of the publication: it is cloned, or --torchtitan names a
checkout. Replaced are its tokenizer, by 128,000 words that mean nothing, and its data set, by random text: memory
depends on the number of words alone. Without --all-ranks it is rank 0, and the other ranks of each of its communicators
do as it does (`GpuBox.real`). The Python that runs this needs distdbg and what torchtitan imports:

    pip install torch==2.13.0 triton==3.7.1 torchdata tiktoken blobfile tomli datasets tensorboard
    pip install --no-deps torchao==0.8.0        of the month of the publication

torchtitan publishes the peak of what the allocator reserved (`max_reserved_gib` of its metrics), as is compared here.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import random
import re
import runpy
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

GIB = 1 << 30
TORCHTITAN = "https://github.com/pytorch/torchtitan"
COMMIT = "9dec370ad26b5f8e9a7333a0e36165018262644b"
#: Of the publication.
TABLES = f"{TORCHTITAN}/blob/main/benchmarks/llama3_h100_202412_torchtitan.md"
GPU_MEMORY = "95GiB"
#: Off by more than this is worth a look; --check fails.
MOST_OFF = 0.07
WORDS = 128_000
STEPS = 3
#: The most that one machine of 24 GB runs at once.
MOST_RANKS = 16


@dataclass(frozen=True)
class Published:
    """A configuration, and the peak of reserved memory of a GPU that was published for it."""

    name: str
    table: str
    gpus: int
    arguments: tuple[str, ...]
    reserved_gib: float


_COMPILE = ("--training.compile",)
_FLOAT8 = ("--float8.enable_float8_linear", "--float8.enable_fsdp_float8_all_gather",
           "--float8.precompute_float8_dynamic_scale_for_fsdp")  # fmt: skip
_BATCH_2 = ("--training.batch_size", "2")


def _context(parallel: int, sequence: int, published: float) -> Published:
    arguments = ("--training.batch_size", "1", "--training.seq_len", str(sequence), *_COMPILE, *_FLOAT8,
                 "--activation_checkpoint.mode", "full")  # fmt: skip
    split = ("--experimental.context_parallel_degree", str(parallel)) if parallel > 1 else ()
    return Published(f"8B-context-{parallel}", "table 2", 8, (*arguments, *split), published)


PUBLISHED = (
    Published("8B", "table 1", 8, _BATCH_2, 82.4),
    Published("8B-compile", "table 1", 8, (*_BATCH_2, *_COMPILE), 77.0),
    Published("8B-compile-float8", "table 1", 8, (*_BATCH_2, *_COMPILE, *_FLOAT8), 76.8),
    _context(1, 32_768, 83.9),
    _context(2, 65_536, 84.2),
    _context(8, 262_144, 84.5),
    Published("8B-128", "table 3", 128, _BATCH_2, 67.0),
    Published("8B-128-compile", "table 3", 128, (*_BATCH_2, *_COMPILE), 62.0),
    Published("8B-128-compile-float8", "table 3", 128, (*_BATCH_2, *_COMPILE, *_FLOAT8), 61.8),
)


def prepare(folder: Path, checkout: Path | None) -> Path:
    """torchtitan in `folder`, with the data set it finds there and, beside it, a tokenizer."""
    titan = folder / "torchtitan"
    if checkout is not None:
        titan.mkdir()
        names = ("torchtitan", "train.py", "train_configs")  # its assets are not needed
        packed = subprocess.run(["git", "-C", checkout, "archive", COMMIT, *names], stdout=subprocess.PIPE, check=True)
        subprocess.run(["tar", "x", "-C", titan], input=packed.stdout, check=True)
    else:
        subprocess.run(["git", "clone", "--quiet", "--filter=blob:none", TORCHTITAN, titan], check=True)
        subprocess.run(["git", "-C", titan, "checkout", "--quiet", COMMIT], check=True)
    texts = titan / "tests" / "assets" / "c4_test" / "data.json"
    texts.parent.mkdir(parents=True, exist_ok=True)
    chosen = random.Random(0)
    words = ("the", "of", "and", "a", "to", "in", "is", "it")
    texts.write_text("".join(json.dumps({"text": " ".join(chosen.choices(words, k=300))}) + "\n" for _ in range(2000)))
    write_tokenizer(folder / "tokenizer.model")
    return titan


def write_tokenizer(path: Path) -> None:
    """A tokenizer of Llama 3's form and size whose words mean nothing."""
    tokens = [bytes([byte]) for byte in range(256)]
    tokens += [b"\x00" + number.to_bytes(3, "big") for number in range(WORDS - len(tokens))]
    path.write_text("".join(f"{base64.b64encode(token).decode()} {rank}\n" for rank, token in enumerate(tokens)))


def _program(one: Published, titan: Path) -> list[str]:
    return ["train.py", "--job.config_file", "train_configs/llama3_8b.toml", "--training.dataset", "c4_test",
            "--model.tokenizer_path", str(titan.parent / "tokenizer.model"), "--training.steps", str(STEPS),
            "--metrics.log_freq", "1", *one.arguments]  # fmt: skip


def with_all_ranks(one: Published, titan: Path) -> float | None:
    """GiB that the allocator reserved at most, on any rank. None where the job did not come to its end."""
    words = [sys.executable, "-m", "distdbg", "rehearse", "--json", "--gpus", str(one.gpus), "--gpu-memory", GPU_MEMORY,
             "--run-dir", str(titan.parent / one.name), *_program(one, titan)]  # fmt: skip
    done = subprocess.run(words, cwd=titan, env=environment(), stdout=subprocess.PIPE, text=True, check=False)
    found = json.loads(done.stdout)["rehearsal"] if done.stdout else {"fits": None}
    return max(peak["reserved"] for peak in found["peaks"]) / GIB if found["fits"] else None


def of_rank_0(one: Published, titan: Path) -> float | None:
    """The same of rank 0 alone, as torchtitan's own log has it."""
    from gpu_box.box import gpu_box
    from gpu_box.build import build

    with gpu_box(build(), devices=1, memory=GPU_MEMORY, values=False, real=(0,)) as box:
        words = [sys.executable, __file__, "--rank-0-of", str(one.gpus), *_program(one, titan)]
        env = {**environment(), **box.environment(environment())}
        done = subprocess.run(words, cwd=titan, env=env, stderr=subprocess.PIPE, text=True, check=False)
    found = re.findall(r"memory: *([\d.]+)GiB", done.stderr)
    if done.returncode or len(found) != STEPS:
        print(done.stderr[-4000:], file=sys.stderr)
        return None
    return max(map(float, found))


def as_rank_0(world: int, script: str) -> None:
    """Run `script` as torchrun would start rank 0. The store waits for no other rank."""
    import torch.distributed as dist

    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    os.environ.update(RANK="0", WORLD_SIZE=str(world), LOCAL_RANK="0", LOCAL_WORLD_SIZE="8", MASTER_ADDR="127.0.0.1",
                      MASTER_PORT=str(store.port), TORCHELASTIC_USE_AGENT_STORE="True")  # fmt: skip
    sys.path[0] = str(Path(script).resolve().parent)
    runpy.run_path(script, run_name="__main__")


def off_by(found: float | None, published: float) -> tuple[float, str]:
    """By which part of the published GiB it is off, infinite where there is none; and two cells of a table."""
    if found is None:
        return float("inf"), "did not end | "
    return abs(found / published - 1), f"{found:.1f} GiB | {found / published - 1:+.1%}"


def environment() -> dict[str, str]:
    return {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}


def main() -> int:
    if sys.argv[1:2] == ["--rank-0-of"]:
        world = int(sys.argv[2])
        del sys.argv[:3]
        as_rank_0(world, sys.argv[0])
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torchtitan", type=Path, help="a git checkout that has the commit, in place of a clone")
    parser.add_argument("--only", default="", help="a part of the names of the configurations")
    parser.add_argument("--all-ranks", action="store_true")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    worst = 0.0
    print("| configuration | source | published | simulated | off |\n|---|---|---:|---:|---:|", flush=True)
    with tempfile.TemporaryDirectory(prefix="rehearse-peaks-") as folder:
        titan = prepare(Path(folder), options.torchtitan)
        for one in (one for one in PUBLISHED if options.only in one.name):
            if options.all_ranks and one.gpus > MOST_RANKS:
                continue
            found = (with_all_ranks if options.all_ranks else of_rank_0)(one, titan)
            off, simulated = off_by(found, one.reserved_gib)
            worst = max(worst, off)
            print(f"| {one.name} | {one.table} | {one.reserved_gib} GiB | {simulated} |", flush=True)
    print(f"\nSource: {TABLES}")
    return int(options.check and worst > MOST_OFF)


if __name__ == "__main__":
    sys.exit(main())
