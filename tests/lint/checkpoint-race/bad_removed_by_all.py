import shutil

import torch.distributed as dist


def convert(model, folder, convert_to):
    if not dist.is_initialized() or dist.get_rank() == 0:
        convert_to(model, folder)
    dist.barrier()
    yield folder
    shutil.rmtree(folder, ignore_errors=True)  # expect: checkpoint-race
