import torch.distributed as dist


def save_if_better(loss, threshold):
    save = False
    if dist.get_rank() == 0:
        save = loss < threshold
    if save:
        dist.barrier()  # expect: rank-conditional-collective


def count_steps(rank, loader, every):
    step = 0
    for _ in loader:
        if rank == 0:
            step += 1
        if step % every == 0:
            if rank == 0:
                print(step)
            dist.barrier()  # expect: rank-conditional-collective


def is_improved(loss, best):
    if dist.get_rank() != 0:
        return False
    return loss < best


def reduce_if_improved(loss, best):
    improved = is_improved(loss, best)
    if improved:
        dist.all_reduce(loss)  # expect: rank-conditional-collective


class Trainer:
    def __init__(self):
        self.stop = False

    def evaluate(self, loss):
        if dist.get_rank() == 0:
            self.stop = loss > 10

    def train(self, loader):
        for batch in loader:
            self.evaluate(batch)
            if self.stop:
                break
            dist.all_reduce(batch)  # expect: rank-conditional-collective
