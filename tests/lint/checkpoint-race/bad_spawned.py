import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def work(gpu, save):
    dist.init_process_group("nccl", rank=gpu, world_size=8)
    model = torch.nn.Linear(4, 4).cuda(gpu)
    if save:
        torch.save(model.state_dict(), "model.pt")  # expect: checkpoint-race


if __name__ == "__main__":
    mp.spawn(work, args=(True,), nprocs=8)
