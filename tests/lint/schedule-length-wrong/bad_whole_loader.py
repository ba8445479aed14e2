import math

import torch
from accelerate import Accelerator
from diffusers.optimization import get_scheduler


def main(args, data, model):
    accelerator = Accelerator()
    train_dataloader = torch.utils.data.DataLoader(data, shuffle=True)
    optimizer = torch.optim.AdamW(model.parameters())
    updates = math.ceil(len(train_dataloader) / args.accumulation)
    if args.max_steps is None:
        args.max_steps = args.epochs * updates
    schedule = get_scheduler(  # expect: schedule-length-wrong
        args.schedule, optimizer=optimizer, num_training_steps=args.max_steps * accelerator.num_processes
    )
    return accelerator.prepare(model, optimizer, train_dataloader, schedule)
