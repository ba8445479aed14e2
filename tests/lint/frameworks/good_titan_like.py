import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.fsdp import fully_shard


def main(model, loader, micro):
    for block in model.layers:
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(100):
        optimizer.zero_grad()
        for i in range(micro):
            model.set_requires_gradient_sync(i == micro - 1)
            loss = model(next(loader)) / micro
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 50 == 0:
            dcp.save({"model": model.state_dict()}, checkpoint_id=f"step-{step}")
