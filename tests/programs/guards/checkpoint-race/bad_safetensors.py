"""A model is saved the way save_pretrained does it, by all ranks.

Guard: checkpoint-race; line: save_file(model.state_dict(), path); ranks: 0-1
"""

import tempfile

import torch
import torch.distributed as dist
from safetensors.torch import save_file


def export(model, path):
    save_file(model.state_dict(), path)


dist.init_process_group("gloo")
folder = [tempfile.mkdtemp()]
dist.broadcast_object_list(folder)
export(torch.nn.Linear(4, 1), f"{folder[0]}/model.safetensors")
dist.barrier()
dist.destroy_process_group()
