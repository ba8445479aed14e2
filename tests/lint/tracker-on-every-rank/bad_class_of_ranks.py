import deepspeed
import torch.distributed as dist
import wandb


class Trainer:
    def __init__(self, project):
        if project:
            wandb.init(project=project)  # expect: tracker-on-every-rank

    def fit(self, model, config, loader):
        engine, _, _, _ = deepspeed.initialize(model=model, config=config)
        for batch in loader:
            engine.backward(engine(batch).mean())
            engine.step()
        dist.barrier()
