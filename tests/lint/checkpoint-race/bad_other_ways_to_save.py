"""What is no torch.save writes as well."""

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch.nn.parallel import DistributedDataParallel


def main(net, loader, optimizer, output):
    dist.init_process_group("nccl")
    model = DistributedDataParallel(net)
    for batch in loader:
        optimizer.zero_grad()
        model(batch).backward()
        optimizer.step()
    model.module.save_pretrained(output)  # expect: checkpoint-race
    save_file(model.module.state_dict(), "model.safetensors")  # expect: checkpoint-race
    torch.jit.save(torch.jit.script(model.module), "model.pt")  # expect: checkpoint-race


if __name__ == "__main__":
    main(net, loader, optimizer, "out")
