import math

import torch
from accelerate import Accelerator
from diffusers.optimization import get_scheduler


def main(args, data, model):
    accelerator = Accelerator()
    train_dataloader = torch.utils.data.DataLoader(data, shuffle=True)
    optimizer = torch.optim.AdamW(model.parameters())
    mine = math.ceil(len(train_dataloader) / accelerator.num_processes)
    updates = math.ceil(mine / args.accumulation)
    schedule = get_scheduler(
        args.schedule, optimizer=optimizer, num_training_steps=args.epochs * updates * accelerator.num_processes
    )
    model, optimizer, train_dataloader, schedule = accelerator.prepare(model, optimizer, train_dataloader, schedule)
    total_steps = args.epochs * len(train_dataloader)
    return total_steps
