"""An Accelerate script as its documentation teaches them: prepare, accumulate, clip, gather, save_state."""

import gc
import sys

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset


def main():
    accelerator = Accelerator(cpu=not torch.cuda.is_available(), gradient_accumulation_steps=2)
    set_seed(0)
    inputs = torch.randn(256, 16)
    data = TensorDataset(inputs, inputs.sum(1, keepdim=True).tanh())
    # here: start
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.GELU(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=100)
    loader = DataLoader(data, batch_size=8, shuffle=True, num_workers=1)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)

    losses = []
    for epoch in range(3):
        loader.set_epoch(epoch)
        for x, y in loader:
            # here: step
            with accelerator.accumulate(model):
                loss = torch.nn.functional.mse_loss(model(x), y)
                # here: loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            losses.append(accelerator.gather(loss.detach()).mean().item())
        accelerator.print(f"epoch {epoch} loss {losses[-1]:.4f}")
    # here: save
    accelerator.save_state(sys.argv[1])
    accelerator.wait_for_everyone()
    accelerator.load_state(sys.argv[1])
    assert losses[-1] < losses[0], losses
    if accelerator.is_main_process:
        print("CLIENT OK", accelerator.num_processes, flush=True)


if __name__ == "__main__":
    main()
    # What hooks into the group goes before the group: gloo can deadlock or abort where DDP's reducer is the last to go.
    gc.collect()
    torch.distributed.destroy_process_group()
