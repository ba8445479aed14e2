from torch.distributed.fsdp import fully_shard


def shard(model):
    for layer in model.layers[:-1]:
        fully_shard(layer)
    last = list(model.layers)[-1]
    fully_shard([last, model.norm, model.head])
    fully_shard(model)
