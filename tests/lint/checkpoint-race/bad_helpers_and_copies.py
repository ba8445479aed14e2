import shutil

import torch.distributed as dist
from checkpoints import save_checkpoint
from torch.nn.parallel import DistributedDataParallel as DDP


def main(net, folder, log):
    dist.init_process_group("nccl")
    model = DDP(net)
    save_checkpoint(model.state_dict(), folder)  # expect: checkpoint-race
    shutil.copyfile(f"{folder}/last.pt", f"{folder}/best.pt")  # expect: checkpoint-race
    with (log / "config.yaml").open("w") as out:  # expect: checkpoint-race
        out.write("config")
    return model
