import os

import torch.distributed as dist
from transformers import TrainerCallback


class Log(TrainerCallback):
    def on_init_end(self, args, state, control):
        dist.init_process_group("nccl")
        if args.should_save and os.path.exists(os.path.join(args.output_dir, "checkpoint.jsonl")):
            os.remove(os.path.join(args.output_dir, "checkpoint.jsonl"))
