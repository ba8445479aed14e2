"""How far estimates of a peak are from what is measured: three models, plain, DDP and FSDP2, on two ranks of CPU.

    python benchmarks/memory_estimate.py                 twenty minutes on two cores
    python benchmarks/memory_estimate.py --dtype bf16    or amp
    python benchmarks/memory_estimate.py --check         exit code 1 where one is over 10 % off
    python benchmarks/memory_estimate.py --cuda          models of real widths on one GPU of 80 GB; some minutes

Measured is the highest RSS of rank 0 over three steps, less what it was before the model was made; memory of 64 KiB
and more is given back at once (mallopt), as a GPU's allocator would reuse it. A CPU has no workspaces of cuBLAS: they
are left out of the estimates. It keeps more for dropout than a GPU, which the estimates are made for: there is none.

With --cuda it is torch.cuda.max_memory_allocated() of rank 0. torch's `fake` process group has as many ranks as are
wanted in one process: FSDP2 and DDP allocate as with NCCL, and no data is exchanged. It also runs on the simulated
devices: python -m gpu_box.box --no-values python benchmarks/memory_estimate.py --cuda
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

MODELS = {
    "gpt2-30M": ("GPT2Config", {"n_layer": 6, "n_embd": 512, "n_head": 8, "vocab_size": 20000,
                                 "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}),
    "llama-34M": ("LlamaConfig", {"num_hidden_layers": 6, "hidden_size": 512, "intermediate_size": 1400,
                                  "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 16000}),
    "qwen2-60M": ("Qwen2Config", {"num_hidden_layers": 8, "hidden_size": 640, "intermediate_size": 1800,
                                  "num_attention_heads": 10, "num_key_value_heads": 2, "vocab_size": 12000}),
}  # fmt: skip
CLASSES = {"GPT2Config": "GPT2LMHeadModel", "LlamaConfig": "LlamaForCausalLM", "Qwen2Config": "Qwen2ForCausalLM",
           "Qwen3MoeConfig": "Qwen3MoeForCausalLM"}  # fmt: skip
BATCH, SEQUENCE = 4, 256
#: With --cuda: name -> config, its values, batch, sequence, dtype. Widths of real models, with few layers.
CUDA_MODELS: dict[str, tuple[str, dict[str, int], int, int, str]] = {
    "gpt2-xl, 12 layers": ("GPT2Config", {"n_layer": 12, "n_embd": 1600, "n_head": 25}, 8, 1024, "fp32"),
    "llama-3-8B, 4 layers": ("LlamaConfig", {"num_hidden_layers": 4, "hidden_size": 4096, "intermediate_size": 14336,
                             "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
                             "max_position_embeddings": 8192}, 2, 4096, "bf16"),
    "qwen3-30B-A3B, 4 layers": ("Qwen3MoeConfig", {"num_hidden_layers": 4, "hidden_size": 2048, "head_dim": 128,
                                "moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8,
                                "num_attention_heads": 32, "num_key_value_heads": 4, "vocab_size": 151936}, 2, 2048,
                                "bf16"),
}  # fmt: skip
CUDA_WAYS = (("DDP", 2, "none"), ("DDP", 8, "none"), ("FSDP2 full", 2, "full"), ("FSDP2 full", 8, "full"),
             ("FSDP2 grad", 2, "grad"), ("FSDP2 grad", 8, "grad"))  # fmt: skip
#: What the children of a measurement on CUDA load, beside the model's own module.
NEEDED = ("torch.distributed.fsdp", "torch.distributed.device_mesh", "torch.nn.parallel", "torch._dynamo",
          "torch.testing._internal.distributed.fake_pg", "torch.utils.checkpoint")  # fmt: skip
WAYS = {"plain": (1, "none"), "ddp": (2, "none"), "fsdp2": (2, "full"), "fsdp2, grad": (2, "grad")}


def rank(folder: str, way: str, checkpointing: bool, dtype: str) -> None:
    """In a rank: three real steps, and rank 0 prints MiB."""
    import ctypes
    from contextlib import nullcontext

    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel
    from transformers import AutoConfig, AutoModelForCausalLM

    ctypes.CDLL("libc.so.6").mallopt(-3, 64 << 10)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    ids = torch.zeros(BATCH, SEQUENCE, dtype=torch.long)
    config = AutoConfig.from_pretrained(folder)
    small = {"num_hidden_layers": 1, "vocab_size": 16, "hidden_size": 16, "intermediate_size": 16,
             "num_attention_heads": 2, "num_key_value_heads": 2, "n_layer": 1, "n_embd": 16, "n_head": 2}  # fmt: skip
    first = AutoModelForCausalLM.from_config(type(config)(**{k: v for k, v in small.items() if hasattr(config, k)}))
    weights = torch.bfloat16 if dtype == "bf16" else torch.float32
    cast = torch.autocast("cpu", torch.bfloat16) if dtype == "amp" else nullcontext()
    with cast:
        loss = first.to(weights)(input_ids=ids % 16, labels=ids % 16, use_cache=False).loss
    loss.backward()  # what is loaded once is no model's
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    model = AutoModelForCausalLM.from_config(config).to(weights).train()
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    if way.startswith("fsdp2"):
        layers = max((m for m in model.modules() if isinstance(m, torch.nn.ModuleList)), key=len)
        for layer in layers:
            fully_shard(layer, reshard_after_forward=way == "fsdp2")
        fully_shard(model)
    net = DistributedDataParallel(model) if way == "ddp" else model
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    for number in range(3):
        if number == 1:  # what was only needed to make the model and to shard it is gone
            Path("/proc/self/clear_refs").write_text("5")
        with cast:
            loss = net(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        del loss
        optimizer.step()
        optimizer.zero_grad()
    if dist.get_rank() == 0:
        print(json.dumps(_status("VmHWM") - before))
    dist.barrier()
    dist.destroy_process_group()


def _status(name: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024


def measured(folder: str, way: str, dtype: str, *, checkpointing: bool) -> float:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(WAYS[way][0]),
               __file__, "--rank", folder, way, str(int(checkpointing)), dtype]  # fmt: skip
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    return float(json.loads(done.stdout.strip().splitlines()[-1]))


def _done(result: Any) -> Any:  # noqa: ANN401
    import torch

    future: Any = torch.futures.Future()
    future.set_result(result)
    return future


def cuda_peak(folder: str, batch: int, sequence: int, *, dtype: str, ranks: int, fsdp: str, checkpointing: bool) -> int:
    """Of the third step, in bytes. Called once in a process: FSDP2 keeps the last model."""
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel
    from torch.testing._internal.distributed.fake_pg import FakeStore
    from transformers import AutoConfig, AutoModelForCausalLM

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    mesh = init_device_mesh("cuda", (ranks,))
    ids = torch.zeros(batch, sequence, dtype=torch.long, device="cuda")
    weights = torch.bfloat16 if dtype == "bf16" else torch.float32
    with torch.device("cuda"):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), dtype=weights).train()
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    if fsdp != "none":
        layers = max((m for m in model.modules() if isinstance(m, torch.nn.ModuleList)), key=len)
        for layer in layers:
            fully_shard(layer, mesh=mesh, reshard_after_forward=fsdp == "full")
        fully_shard(model, mesh=mesh)
    net = model
    if fsdp == "none":
        net = DistributedDataParallel(model, device_ids=[0], init_sync=False)
        # In place of DDP's all-reduce, which is in place: results of the `fake` group hold no tensors.
        net.register_comm_hook(None, lambda _, bucket: _done(bucket.buffer()))
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    for _ in range(3):
        torch.cuda.reset_peak_memory_stats()
        with torch.autocast("cuda", torch.bfloat16, enabled=dtype == "amp"):
            loss = net(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        del loss
        optimizer.step()
        optimizer.zero_grad()
    return torch.cuda.max_memory_allocated()


def in_a_child(call: Callable[[], int]) -> int:
    """A fork has all that is imported, and its collector leaves that alone; nobody has begun CUDA yet."""
    gc.freeze()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, str(call()).encode())
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as file:
        text = file.read()
    os.waitpid(child, 0)
    return int(text)


def on_cuda(only: str, ways: Sequence[tuple[str, int, str]]) -> list[dict[str, object]]:
    """A row for each model whose name has `only` in it, way and number of ranks."""
    import transformers

    for needed in NEEDED:  # once, and not in each child
        importlib.import_module(needed)

    from distdbg.shrink.estimate.estimating import EstimateRequest, estimate, track

    rows: list[dict[str, object]] = []
    for name, (config, values, batch, sequence, dtype) in CUDA_MODELS.items():
        if only not in name:
            continue
        with tempfile.TemporaryDirectory(prefix="me-") as folder:
            getattr(transformers, config)(architectures=[CLASSES[config]], **values).save_pretrained(folder)
            for checkpointing in (False, True):
                getattr(transformers, CLASSES[config])  # loads its module, for the same reason
                step = track(folder, EstimateRequest(batch, sequence, dtype=dtype, checkpointing=checkpointing))
                for way, ranks, fsdp in ways:
                    found = estimate(step, ranks, fsdp)  # type: ignore[arg-type]
                    peak = partial(cuda_peak, folder, batch, sequence, dtype=dtype, ranks=ranks, fsdp=fsdp)
                    had = in_a_child(partial(peak, checkpointing=checkpointing))
                    off = found.total / had - 1
                    row = {"model": name, "dtype": dtype, "way": way, "ranks": ranks, "checkpointing": checkpointing}
                    rows.append({**row, "measured": had, "estimated": found.total, "off": off, "when": found.when})
                    words = f"{way}, {ranks} ranks{', checkpointed' if checkpointing else ''}"
                    print(f"{name:24} {dtype} {words:34} measured {had / 2**30:6.2f} GiB, "
                          f"estimated {found.total / 2**30:6.2f}: {off:+.1%}  {found.when}", flush=True)  # fmt: skip
    return rows


def main() -> int:
    from distdbg.shrink.estimate.estimating import CUBLAS, MARGIN, EstimateRequest, estimate, track

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--dtype", choices=["fp32", "bf16", "amp"], default="fp32")
    parser.add_argument("--cuda", action="store_true")
    parser.add_argument("--only", default="", metavar="TEXT", help="with --cuda: models with this in their names")
    parser.add_argument("--sample", action="store_true", help="with --cuda: half of the ways")
    parser.add_argument("--json", type=Path, help="with --cuda: the rows also to this file")
    given = parser.parse_args()
    worst = 0.0
    if given.cuda:
        rows = on_cuda(given.only, [CUDA_WAYS[at] for at in (0, 3, 4)] if given.sample else CUDA_WAYS)
        if given.json:
            given.json.write_text(json.dumps(rows, indent=1) + "\n")
        worst = max(abs(float(str(row["off"]))) for row in rows)
        print(f"at most {worst:.1%} off")
        return int(given.check and worst > MARGIN)
    for name, (config, values) in MODELS.items():
        with tempfile.TemporaryDirectory(prefix="me-") as folder:
            import transformers

            made = getattr(transformers, config)(architectures=[CLASSES[config]], **values)
            made.save_pretrained(folder)
            for checkpointing in (False, True):
                step = track(folder, EstimateRequest(BATCH, SEQUENCE, dtype=given.dtype, checkpointing=checkpointing))
                for way, (ranks, fsdp) in WAYS.items():
                    said = (estimate(step, ranks, fsdp).total - CUBLAS) / 2**20  # type: ignore[arg-type]
                    had = measured(folder, way, given.dtype, checkpointing=checkpointing)
                    worst = max(worst, abs(said / had - 1))
                    words = f"{way}{', checkpointed' if checkpointing else ''}"
                    print(
                        f"{name:10} {words:26} measured {had:6.0f} MiB, said {said:6.0f}: {said / had - 1:+.1%}",
                        flush=True,
                    )
    print(f"at most {worst:.1%} off")
    return int(given.check and worst > MARGIN)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        rank(sys.argv[2], sys.argv[3], sys.argv[4] == "1", sys.argv[5])
    else:
        sys.exit(main())
