"""Two pipelines of two stages, data parallel. Rank 1 sleeps in its forward: 0 waits for its gradient, 2 and 3 for both.

Verdict: stuck-in-python; ranks: 1; says: pipelines_in_parallel.py:22
"""

import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe


class Stage(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.seen = torch.nn.Linear(8, 8), 0

    def forward(self, x):
        self.seen += 1
        while self.seen > 12 and dist.get_rank() == 1:
            time.sleep(1)
        return self.layer(x)


dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "pp"))
first, module, batch = dist.get_rank() % 2 == 0, Stage(), torch.ones(8, 8)
stage = PipelineStage(module, dist.get_rank() % 2, 2, torch.device("cpu"), group=mesh.get_group("pp"))
schedule = ScheduleGPipe(stage, 4, loss_fn=lambda output, target: (output - target).square().mean())
for step in range(100):
    schedule.step(*([batch] if first else []), **({} if first else {"target": batch}))
    for parameter in module.parameters():
        dist.all_reduce(parameter.grad, group=mesh.get_group("dp"))
