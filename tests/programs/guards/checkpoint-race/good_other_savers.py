"""Files of one rank, of each rank, of all ranks together, and files that are read: none is anybody else's.

Guard: none
"""

import io
import tempfile

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file, save, save_file

dist.init_process_group("gloo")
rank, folder = dist.get_rank(), [tempfile.mkdtemp()]
dist.broadcast_object_list(folder)
model = torch.nn.Linear(4, 1)
if rank == 0:
    save_file(model.state_dict(), f"{folder[0]}/model.safetensors")
    np.save(f"{folder[0]}/order.npy", np.arange(4))
dist.barrier()
load_file(f"{folder[0]}/model.safetensors")
np.load(f"{folder[0]}/order.npy")
save(model.state_dict())
np.save(io.BytesIO(), np.arange(4))
np.save(f"{folder[0]}/loss.{rank}", np.arange(4))
np.savez_compressed(f"{tempfile.mkdtemp()}/loss", np.arange(4))
dcp.save(model.state_dict(), checkpoint_id=f"{folder[0]}/together")
dcp.save(model.state_dict(), checkpoint_id=f"{folder[0]}/alone.{rank}", no_dist=True)
dist.barrier()
dist.destroy_process_group()
