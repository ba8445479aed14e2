import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def work(gpu, nodes, here):
    dist.init_process_group("nccl", rank=here * 8 + gpu, world_size=nodes * 8)
    model = torch.nn.Linear(4, 4).cuda(gpu)
    if gpu == 0:
        torch.save(model.state_dict(), "model.pt")
    torch.save(model.state_dict(), f"part-{gpu}.pt")


if __name__ == "__main__":
    mp.spawn(work, args=(2, 0), nprocs=8)
