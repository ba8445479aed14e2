import torch
from transformers import get_linear_schedule_with_warmup, get_scheduler


def main(model, loader, args):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    first = get_linear_schedule_with_warmup(optimizer, 100, 3 * len(loader))
    second = get_linear_schedule_with_warmup(optimizer, args.warmup, 1000)
    third = get_scheduler("linear", optimizer, num_warmup_steps=int(0.1 * 1000), num_training_steps=1000)
    return first, second, third
