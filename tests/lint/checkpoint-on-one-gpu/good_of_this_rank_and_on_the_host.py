"""Each rank loads what it saved itself, or state that is in no GPU's memory."""

import torch
import torch.distributed as dist


def resume(model, loader, scaler, folder):
    dist.init_process_group("nccl")
    remote = f"{folder}/model_rank_{dist.get_rank()}.pt"
    local = fetched(remote)
    model_state = torch.load(local)
    model.load_state_dict(model_state)
    dataloader_state = torch.load(f"{folder}/data.pt")
    loader.load_state_dict(dataloader_state)
    scaler.load_state_dict(torch.load(f"{folder}/scaler.pt"))
