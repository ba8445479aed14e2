import json
import os

import torch
from transformers import Trainer


class Keeper(Trainer):
    def _save(self, output_dir=None, state_dict=None):
        torch.save(self.args, os.path.join(output_dir, "args.bin"))

    def evaluate(self, *args, **kwargs):
        metrics = super().evaluate(*args, **kwargs)
        with open(os.path.join(self.args.output_dir, "metrics.json"), "w") as file:  # expect: checkpoint-race
            json.dump(metrics, file)
        return metrics


def main(args, model, data):
    trainer = Keeper(model=model, args=args, train_dataset=data)
    trainer.train()
    if args.local_rank == 0:  # expect: checkpoint-race
        model.save_pretrained(args.output_dir)
    return torch.distributed.get_rank()
