import torch
from transformers import get_cosine_schedule_with_warmup

WARMUP = 2000


def main(model):
    epochs, batches = 3, 500
    steps = epochs * batches
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    return get_cosine_schedule_with_warmup(optimizer, WARMUP, steps)


def written_down(model):
    steps_of_the_run = 3 * 500
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    return get_cosine_schedule_with_warmup(  # expect: warmup-too-long
        optimizer, num_warmup_steps=WARMUP, num_training_steps=steps_of_the_run
    )
