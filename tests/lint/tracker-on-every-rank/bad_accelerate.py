import wandb
from accelerate import Accelerator


def main(model, optimizer, loader, project):
    accelerator = Accelerator()
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    if project:
        wandb.init(project=project)  # expect: tracker-on-every-rank
    for batch in loader:
        with accelerator.accumulate(model):
            accelerator.backward(model(batch).mean())
            optimizer.step()
            optimizer.zero_grad()
