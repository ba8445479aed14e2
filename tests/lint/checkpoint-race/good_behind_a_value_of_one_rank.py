import os

import torch
import torch.distributed as dist


def train(model, loader, args):
    folder = None
    if dist.get_rank() == 0:
        folder = os.path.join(args.out, args.name)
    for epoch, batch in enumerate(loader):
        model(batch)
        if folder is not None and epoch % 10 == 0:
            torch.save(model.state_dict(), os.path.join(folder, f"{epoch}.pt"))


class Trainer:
    def __init__(self, args):
        self.log = ""
        if dist.get_rank() == 0:
            self.log = args.log

    def report(self, line):
        if self.log:
            with open(self.log, "w") as file:
                file.write(line)
