"""Guards that only a device makes sense of, and healthy jobs in which all that watches by default says nothing."""

from __future__ import annotations

import pytest

from tests.gpu.conftest import BEGIN, END, STEP, line_of

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

FSDP = """
import os, time
import torch, torch.distributed as dist
from torch.distributed.fsdp import fully_shard
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(4))).cuda()
for layer in model:
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
"""


@pytest.mark.parametrize("script", [BEGIN, FSDP], ids=["ddp", "fsdp2"])
def test_a_healthy_job_on_two_devices_gets_nothing(gpus, script):
    loader = """
data = torch.utils.data.TensorDataset(torch.randn(4096, 64))
sampler = torch.utils.data.DistributedSampler(data)
loader = torch.utils.data.DataLoader(data, batch_size=8, sampler=sampler, pin_memory=True)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for step, (batch,) in enumerate(loader):
        optimizer.zero_grad()
        model(batch.to("cuda", non_blocking=True)).square().mean().backward()
        optimizer.step()
"""
    done, report = gpus(devices=2).launch(f"{script}{loader}{END}", ranks=2)
    assert (done.code, report["outcome"], report["findings"], report["unknown"]) == (0, "succeeded", [], []), report
    assert [rank["step"] for rank in report["ranks"]] == [512, 512], report


def test_weights_are_compared_and_looked_at_without_a_wait_for_the_device(gpus):
    """Equal after step 11; then rank 1 changes a weight."""
    body = f"""{BEGIN}
for step in range(24):{STEP}
    if step == 15 and dist.get_rank() == 1:
        with torch.no_grad():
            next(model.parameters()).mul_(1.5)
{END}"""
    done, report = gpus(devices=2, shadow=True).launch(body, ranks=2)
    assert done.code == 0, done
    assert [(f["id"], f["ranks"], f["step"]) for f in report["findings"]] == [("weights-desynced", [0, 1], 22)], report


#: Rank 1's model is on a device that is not its current one, and DDP is given no device_ids; rank 0's is.
WRONG_DEVICE = f"""{BEGIN.replace("torch.cuda.set_device", "place = ").replace(".cuda()", ".to(place)")}
for step in range(100):{STEP.replace('device="cuda"', "device=place")}
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.zeros(16, 64)), batch_size=8)
for (batch,) in data:
    model(batch)  # raises
{END}"""


def test_a_model_beside_the_current_device_and_an_input_on_the_host(gpus):
    done, report = gpus(devices=2).launch(WRONG_DEVICE, ranks=2)
    found = {f["id"]: f for f in report["findings"]}
    assert found["ddp-without-device-ids"]["ranks"] == [1], report
    assert "cuda:1, and the current device is cuda:0" in found["ddp-without-device-ids"]["summary"], report
    assert done.code == 1 and found["mixed-devices"]["ranks"] == [0, 1], report
    assert f"train.py:{line_of(WRONG_DEVICE, '# raises')}" in found["mixed-devices"]["summary"], report


#: Rank 0 computes the loss in half precision and clips scaled gradients; rank 1 does neither.
SCALED = f"""{BEGIN}
right = dist.get_rank() == 1
scaler = torch.amp.GradScaler("cuda")
target = torch.zeros(8, 64, device="cuda")
for step in range(60):
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        out = model(torch.randn(8, 64, device="cuda"))
        loss = torch.nn.functional.mse_loss(out, target) if right else None
    if not right:
        loss = torch.nn.functional.mse_loss(out, target.half())
    scaler.scale(loss).backward()  # loss
    if right:
        scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # clip
    scaler.step(optimizer)
    scaler.update()
{END}"""


def test_a_loss_outside_of_autocast_and_gradients_clipped_while_scaled(gpus):
    done, report = gpus(devices=2).launch(SCALED, ranks=2)
    assert done.code == 0, done
    found = {f["id"]: f for f in report["findings"]}
    assert found.keys() == {"loss-outside-autocast", "clip-before-unscale"}, report
    for name, words in (("loss-outside-autocast", "# loss"), ("clip-before-unscale", "# clip")):
        assert found[name]["ranks"] == [0] and f"train.py:{line_of(SCALED, words)}" in str(found[name]), report
