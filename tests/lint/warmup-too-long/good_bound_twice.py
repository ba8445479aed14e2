import torch
from transformers import get_linear_schedule_with_warmup


def main(model, quick):
    steps = 100
    if not quick:
        steps = 100_000
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    return get_linear_schedule_with_warmup(optimizer, 500, steps)
