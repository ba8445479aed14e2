import torch
from transformers import get_scheduler


def main(args, accelerator, model, optimizer, loader, data):
    per_step = args.batch_size * accelerator.num_processes
    steps = len(data) // per_step
    total = steps * args.epochs
    scheduler = get_scheduler("linear", optimizer, num_training_steps=total)  # expect: schedule-length-wrong
    for _ in range(args.epochs):
        for x in loader:
            with accelerator.accumulate(model):
                accelerator.backward(model(x).mean())
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()


def by_hand(args, model, loader):
    optimizer = torch.optim.AdamW(model.parameters())
    schedules = torch.optim.lr_scheduler
    scheduler = schedules.CosineAnnealingLR(optimizer, T_max=len(loader) * args.epochs)  # expect: schedule-length-wrong
    for _ in range(args.epochs):
        for i, x in enumerate(loader):
            (model(x).mean() / args.accumulation_steps).backward()
            if (i + 1) % args.accumulation_steps == 0:
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
