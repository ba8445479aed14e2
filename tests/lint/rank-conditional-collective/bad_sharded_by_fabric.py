import torch
from lightning.fabric import Fabric
from lightning.fabric.strategies import FSDPStrategy


def main(net, batches):
    fabric = Fabric(devices=4, strategy=FSDPStrategy())
    model = fabric.setup_module(net)
    train(fabric, model, batches)


def train(fabric, model, batches):
    for number, batch in enumerate(batches):
        if number % 1000 == 0 and fabric.global_rank == 0:
            print(validate(model, batches))
        fabric.backward(model(batch).mean())


@torch.no_grad()
def validate(model, batches):
    return [model(batch).mean() for batch in batches]  # expect: rank-conditional-collective
