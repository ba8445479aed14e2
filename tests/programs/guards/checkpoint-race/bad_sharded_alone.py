"""A sharded checkpoint that each rank writes as if there were no others: the same names in the same folder.

Guard: checkpoint-race; line: dcp.save(model.state_dict(), checkpoint_id=path, no_dist=True); ranks: 0-1
"""

import contextlib
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

dist.init_process_group("gloo")
folder = [tempfile.mkdtemp()]
dist.broadcast_object_list(folder)
model = torch.nn.Linear(4, 1)
path = f"{folder[0]}/steps/10"
with contextlib.suppress(dcp.CheckpointException):  # who comes second may find that its file is gone
    dcp.save(model.state_dict(), checkpoint_id=path, no_dist=True)
dist.barrier()
dist.destroy_process_group()
