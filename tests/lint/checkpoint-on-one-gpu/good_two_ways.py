import torch
import torch.distributed as dist


def main(model, args):
    dist.init_process_group("nccl")
    if args.gpu is None:
        checkpoint = torch.load(args.resume)
    else:
        checkpoint = torch.load(args.resume, map_location=f"cuda:{args.gpu}")
    model.load_state_dict(checkpoint["state_dict"])
