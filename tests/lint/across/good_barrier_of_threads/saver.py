import torch.distributed as dist
from ours.distributed import barrier


class Saver:
    future = None

    def wait(self, blocking):
        if (fut := self.future) is not None:
            if blocking or fut.done():
                fut.result()
                barrier()
                self.future = None
        print(dist.get_rank())
