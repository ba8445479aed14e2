"""Predictions of every rank go into one archive.

Guard: checkpoint-race; line: np.savez(Path(folder[0], "predictions"), scores=scores); ranks: 0-1
"""

import tempfile
from pathlib import Path

import numpy as np
import torch.distributed as dist

dist.init_process_group("gloo")
folder = [tempfile.mkdtemp()]
dist.broadcast_object_list(folder)
scores = np.full(4, dist.get_rank())
np.savez(Path(folder[0], "predictions"), scores=scores)
dist.barrier()
dist.destroy_process_group()
