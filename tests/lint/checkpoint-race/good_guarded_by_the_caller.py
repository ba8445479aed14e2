import torch
import torch.distributed as dist


def is_main():
    return dist.get_rank() == 0


def save(model, path):
    torch.save(model.state_dict(), path)


def main(model):
    dist.init_process_group()
    for epoch in range(3):
        if is_main():
            save(model, f"{epoch}.pt")
