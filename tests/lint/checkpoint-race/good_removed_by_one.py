import shutil

import torch.distributed as dist


def convert(model, folder, convert_to):
    if dist.get_rank() == 0:
        convert_to(model, folder)
    dist.barrier()
    yield folder
    if dist.get_rank() == 0:
        shutil.rmtree(folder)


def of_each_rank(model, cache, convert_to):
    convert_to(model, cache)
    yield cache
    shutil.rmtree(cache)
