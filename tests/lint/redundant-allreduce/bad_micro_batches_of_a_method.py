"""A method goes over the micro-batches of a wrapped model, under a context that only measures; another one steps."""

from torch.nn.parallel import DistributedDataParallel


class Trainer:
    def __init__(self, net, gpu, timer, opt):
        self.model = DistributedDataParallel(net, device_ids=[gpu])
        self.timer, self.opt = timer, opt

    def forward_backward(self, batch):
        for first in range(0, len(batch), self.microbatch):
            loss = self.model(batch[first : first + self.microbatch]).mean()
            with self.timer("backward"):
                loss.backward()  # expect: redundant-allreduce

    def run_step(self, batch):
        self.opt.zero_grad()
        self.forward_backward(batch)
        self.opt.step()
