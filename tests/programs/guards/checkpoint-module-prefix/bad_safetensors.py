"""The wrapper's names go into a file of safetensors.

Guard: checkpoint-module-prefix; line: save_file(trained.state_dict(), Path(tempfile.mkdtemp(), "model.safetensors"))
"""

import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = torch.nn.Linear(4, 1)
trained = DistributedDataParallel(model)
trained(torch.ones(2, 4)).sum().backward()
if dist.get_rank() == 0:
    save_file(trained.state_dict(), Path(tempfile.mkdtemp(), "model.safetensors"))
dist.barrier()
del trained, model
dist.destroy_process_group()
