"""Fine-tunes, distributed by `accelerate launch` or not."""

from accelerate import Accelerator, DistributedType


def main(model, optimizer, loader):
    accelerator = Accelerator(log_with="wandb")
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for step, batch in enumerate(loader):
        accelerator.backward(model(batch))
        optimizer.step()
        optimizer.zero_grad()
        if step % 500 == 0:
            accelerator.save_state(f"state-{step}")


def for_any_type(model, is_sharded):
    accelerator = Accelerator()
    model = accelerator.prepare(model)
    if accelerator.is_main_process or is_sharded:
        accelerator.save_state("state")


def for_deepspeed(model):
    accelerator = Accelerator()
    model = accelerator.prepare(model)
    if accelerator.distributed_type == DistributedType.DEEPSPEED or accelerator.is_main_process:
        accelerator.save_state("state")
