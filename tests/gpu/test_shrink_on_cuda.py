"""Models made smaller while they are built and run, on devices; a model of transformers, untouched."""

from __future__ import annotations

import json

import pytest

from tests.gpu.conftest import END

pytest.importorskip("transformers")
pytestmark = [pytest.mark.gpu, pytest.mark.slow]

PROGRAM = f"""
import os, sys
import torch, torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from transformers import LlamaConfig, LlamaForCausalLM
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
model = LlamaForCausalLM(LlamaConfig(hidden_size=64, intermediate_size=128, num_attention_heads=4, num_hidden_layers=6,
                                     num_key_value_heads=2, vocab_size=64)).cuda()
if sys.argv[1] == "fsdp":
    for layer in model.model.layers:
        fully_shard(layer)
    fully_shard(model)
else:
    model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[local_rank])
optimizer = torch.optim.AdamW(model.parameters())
ids = torch.randint(0, 64, (2, 32)).cuda()
for _ in range(10):
    model(input_ids=ids, labels=ids).loss.backward()
    assert all(p.grad is not None and p.grad.is_cuda for p in model.parameters())
    optimizer.step()
    optimizer.zero_grad()
{END}"""


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_fewer_layers_and_less_attention(gpus, kind):
    """The one finding says that the model is smaller."""
    box = gpus(devices=2)
    (box.folder / "train.py").write_text(PROGRAM)
    words = ("--nproc-per-node", "2", "--keep-layers", "3", "--skip-attention", "all-but-last")
    done = box.run("launch", *words, "train.py", kind, timeout=180)
    report = box.report()
    assert (done.code, report["outcome"]) == (0, "succeeded"), done
    (found,) = report["findings"]
    assert (found["id"], found["ranks"]) == ("model-shrunk", [0, 1]), report
    assert "3 of 6 layers; no attention in layers 0-1, real in 2" in found["summary"], found
    assert [rank["step"] for rank in report["ranks"]] == [10, 10], report


SEQUENCE = f"""
import json, os, pickle
import torch, torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from transformers import LlamaConfig, LlamaForCausalLM
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
ids = torch.randint(0, 64, (2, 32)).cuda()
def trained(wrapped):
    torch.manual_seed(0)
    model = wrapped(LlamaForCausalLM(LlamaConfig(hidden_size=64, intermediate_size=128, num_attention_heads=4,
                                                 num_hidden_layers=4, num_key_value_heads=2, vocab_size=64)).cuda())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
def sharded(model):
    for layer in model.model.layers:
        fully_shard(layer)
    fully_shard(model)
    return model
trained(sharded)
trained(lambda model: torch.nn.parallel.DistributedDataParallel(model, device_ids=[local_rank], bucket_cap_mb=0.05))
recorded = pickle.loads(torch._C._distributed_c10d._dump_fr_trace(True, True, False, "nccl2"))["entries"]
with open(f"{{os.environ['SEQUENCES']}}-{{dist.get_rank()}}.json", "w") as file:
    json.dump([[e["profiling_name"], e["input_sizes"], e["output_sizes"], e["input_dtypes"]] for e in recorded], file)
{END}"""


def test_the_collectives_are_the_full_models(gpus):
    """All layers loaded, one of them run, no attention. FSDP2 calls the same collectives in the same order; DDP reduces
    the same bytes, in buckets of which it changes the content to the order in which gradients came."""
    box = gpus(devices=2)
    (box.folder / "train.py").write_text(SEQUENCE)
    found = {}
    for name, words in (
        ("full", ()),
        ("small", ("--keep-layers", "1", "--full-load", "--skip-attention", "all")),
    ):
        env = {"SEQUENCES": str(box.folder / name), "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000"}
        done = box.run("launch", "--nproc-per-node", "2", *words, "train.py", env=env, timeout=240)
        assert done.code == 0, done
        found[name] = [json.loads((box.folder / f"{name}-{rank}.json").read_text()) for rank in range(2)]
    (finding,) = box.report()["findings"]
    assert finding["id"] == "model-shrunk" and "ran 1 of 4 layers" in finding["summary"], finding
    for full, small in zip(found["full"], found["small"], strict=True):
        sharded = [entry for entry in full if entry[0].endswith("_base")]
        assert [entry[0] for entry in sharded].count("nccl2:_reduce_scatter_base") == 2 * 5, sharded
        assert [entry for entry in small if entry[0].endswith("_base")] == sharded
        assert [entry[0] for entry in small] == [entry[0] for entry in full]
        assert reduced(small) == reduced(full) > 0


def reduced(entries):
    """Elements that DDP reduced."""
    return sum(entry[1][0][0] for entry in entries if entry[0] == "nccl2:all_reduce")


PLANTED = """
import os
import torch, torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from transformers import LlamaConfig, LlamaForCausalLM
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
model = LlamaForCausalLM(LlamaConfig(hidden_size=64, intermediate_size=128, num_attention_heads=4, num_hidden_layers=3,
                                     num_key_value_heads=2, vocab_size=64)).cuda()
for layer in model.model.layers:
    fully_shard(layer)
fully_shard(model)
def broken(module, arguments):
    if rank == 1:
        raise IndexError("planted")
for layer in model.model.layers[1:2]:
    layer.register_forward_pre_hook(broken)
ids = torch.randint(0, 64, (2, 32)).cuda()
model(input_ids=ids, labels=ids).loss.backward()
"""


def test_bisect_finds_the_planted_layer(gpus):
    """The second of three layers raises on rank 1."""
    box = gpus(devices=2)
    (box.folder / "train.py").write_text(PLANTED)
    command = ("distdbg", "launch", "--nproc-per-node", "2", "train.py")
    done = box.run("bisect", "--fix", "ranks", "--", *command, timeout=580)
    assert done.code == 0, done
    (path,) = (box.folder / "distdbg-bisect").glob("*/bisect.json")
    (axis,) = json.loads(path.read_text())["axes"]
    assert axis == {"name": "--keep-layers", "from": 3, "to": 2, "does_not_show": 1, "lowest": 1}
