from torch.distributed.fsdp import fully_shard


def shard(model):
    layers = model.layers
    for layer in layers[:-1]:
        fully_shard(layer)
    fully_shard(model.layers[-1], reshard_after_forward=False)
    fully_shard(model)
