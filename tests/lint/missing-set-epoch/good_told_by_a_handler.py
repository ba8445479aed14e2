import torch.distributed as dist
from ignite.engine import Events
from torch.utils.data.distributed import DistributedSampler

from ours import loaders, make_trainer


def run(local_rank, config):
    train_loader, test_loader = loaders(config)
    trainer = make_trainer(config)

    @trainer.on(Events.EPOCH_STARTED)
    def tell():
        if dist.get_world_size() > 1 and isinstance(train_loader.sampler, DistributedSampler):
            train_loader.sampler.set_epoch(trainer.state.epoch - 1)

    trainer.run(train_loader, max_epochs=config.max_epochs)
