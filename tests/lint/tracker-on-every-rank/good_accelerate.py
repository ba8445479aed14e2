import wandb
from accelerate import Accelerator


def main(model, optimizer, loader, project):
    accelerator = Accelerator()
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    use_wandb = accelerator.is_main_process and project
    if use_wandb:
        wandb.init(project=project)
    for batch in loader:
        with accelerator.accumulate(model):
            accelerator.backward(model(batch).mean())
            optimizer.step()
            optimizer.zero_grad()


def setup_tracker(project):
    return wandb.init(project=project)
