from torch.distributed.fsdp import fully_shard


def shard(model, mesh):
    for layer in model.layers[:-1]:
        fully_shard(layer, mesh=mesh)  # expect: fsdp-layer-left-out
    fully_shard(model, mesh=mesh)
