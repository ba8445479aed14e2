"""What rank 1 wants to save cannot be saved: torch.distributed.checkpoint raises its error on both ranks.

Verdict: rank-exception; ranks: 1; exit: 1; says: the shard is open
On two ranks.
"""

import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp


class Shard:
    def __reduce__(self):
        if dist.get_rank() == 1:
            raise ValueError("the shard is open")
        return str, ("shard",)


dist.init_process_group("gloo")
folder = [tempfile.mkdtemp()]
dist.broadcast_object_list(folder)
dcp.save({"weights": torch.ones(4), f"shard{dist.get_rank()}": Shard()}, checkpoint_id=folder[0])
