"""A loop in torchtitan's manner: a two-dimensional device mesh (replicate x shard), the model built on the meta device,
FSDP2 block by block, DTensors in the optimizer, clipping over the mesh, an asynchronous sharded checkpoint."""

import gc
import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.RMSNorm(width)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        # here: forward
        return x + self.down(nn.functional.silu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self, vocabulary=50, width=32, layers=3):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleDict({str(i): Block(width) for i in range(layers)})
        self.output = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers.values():
            x = layer(x)
        return self.output(x)

    def init_weights(self):
        for module in self.modules():
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()


class TrainState(Stateful):
    def __init__(self, model, optimizer):
        self.model, self.optimizer, self.step = model, optimizer, 0

    def state_dict(self):
        weights, moments = get_state_dict(self.model, self.optimizer)
        return {"model": weights, "optimizer": moments, "step": torch.tensor(self.step)}

    def load_state_dict(self, state):
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        self.step = int(state["step"])


def main():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("cpu:gloo,cuda:nccl" if device == "cuda" else "gloo")
    world, local_world = dist.get_world_size(), int(os.environ["LOCAL_WORLD_SIZE"])
    mesh = init_device_mesh(device, (world // local_world, local_world), mesh_dim_names=("replicate", "shard"))

    torch.manual_seed(mesh.get_local_rank("shard"))  # shards are filled where they live, replicas alike
    with torch.device("meta"):
        model = Model()
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    for layer in model.layers.values():
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=False)
    model.to_empty(device=device)
    with torch.no_grad():
        model.init_weights()
    # here: start
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=True)
    state = TrainState(model, optimizer)

    torch.manual_seed(100 + dist.get_rank())
    losses = []
    for step in range(12):
        for micro in range(2):
            model.set_requires_gradient_sync(micro == 1)
            tokens = (torch.arange(17, device=device) + torch.randint(50, (8, 1), device=device)) % 50
            logits = model(tokens[:, :-1]).float()
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()) / 2
            # here: loss
            loss.backward()
        # here: step
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        state.step += 1
        total = loss.detach() * 2
        dist.all_reduce(total, op=dist.ReduceOp.SUM)
        losses.append(total.item() / world)
        if step % 4 == 0 and dist.get_rank() == 0:
            print(f"step {step} loss {losses[-1]:.4f}", flush=True)
    # here: save
    dcp.async_save({"train": state}, checkpoint_id=sys.argv[1]).result()
    state.step = 0
    dcp.load({"train": state}, checkpoint_id=sys.argv[1])
    assert state.step == 12
    assert losses[-1] < losses[0] - 0.5, losses
    if dist.get_rank() == 0:
        print("CLIENT OK", world, flush=True)


if __name__ == "__main__":
    main()
    # What hooks into the group goes before the group: gloo can deadlock or abort where DDP's reducer is the last to go.
    gc.collect()
    torch.distributed.destroy_process_group()
