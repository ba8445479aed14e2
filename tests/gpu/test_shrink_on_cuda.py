"""Models made smaller while they are built and run, on devices; a model of transformers, untouched."""

from __future__ import annotations

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
