import torch.distributed as dist


class RankZeroFirst:
    def __enter__(self):
        if dist.get_rank() != 0:
            dist.barrier()

    def __exit__(self, *error):
        if dist.get_rank() == 0:
            dist.barrier()
