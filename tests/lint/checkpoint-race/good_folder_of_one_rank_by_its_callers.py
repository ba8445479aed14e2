import os

import torch.distributed as dist


def evaluate(args, result):
    if args.local_rank in [-1, 0] and not os.path.exists(args.output_dir):
        os.makedirs(args.output_dir)
    with open(os.path.join(args.output_dir, "result.txt"), "w") as writer:
        writer.write(str(result))


def main(args, model):
    dist.init_process_group("nccl")
    if args.local_rank in [-1, 0]:
        evaluate(args, model())
