import shutil

import torch.distributed as dist
from checkpoints import save_checkpoint, save_state_on_master
from torch.nn.parallel import DistributedDataParallel as DDP


def main(net, folder, log, engine):
    dist.init_process_group("nccl")
    model, rank = DDP(net), dist.get_rank()
    save_checkpoint(model.state_dict(), folder, rank=rank)
    save_state_on_master(model.state_dict(), folder)
    engine.save_checkpoint(folder)
    if rank == 0:
        save_checkpoint(model.state_dict(), folder)
        shutil.copyfile(f"{folder}/last.pt", f"{folder}/best.pt")
    with (log / "config.yaml").open() as given:
        print(given.read())
    return model
