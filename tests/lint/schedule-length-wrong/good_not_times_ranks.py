import torch
from accelerate import Accelerator
from diffusers.optimization import get_scheduler


def main(args, data, model):
    accelerator = Accelerator()
    train_dataloader = torch.utils.data.DataLoader(data, shuffle=True)
    optimizer = torch.optim.AdamW(model.parameters())
    steps = args.epochs * len(train_dataloader)
    schedule = get_scheduler(args.schedule, optimizer=optimizer, num_training_steps=steps)
    loader = accelerator.prepare(train_dataloader)
    print(len(train_dataloader), "batches of all ranks")
    return loader, schedule
