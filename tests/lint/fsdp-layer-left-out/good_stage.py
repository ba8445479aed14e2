from torch.distributed.fsdp import fully_shard


def shard(model, first, last):
    for layer in model.layers[first:last]:
        fully_shard(layer)
    fully_shard(model)


def prefetch(model):
    for layer in model.layers[1:]:
        layer.unshard()
