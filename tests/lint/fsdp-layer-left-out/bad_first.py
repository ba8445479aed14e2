from torch.distributed.fsdp import fully_shard


class Trainer:
    def shard(self):
        for number, block in enumerate(self.model.blocks[1:]):
            print("sharding", number)
            fully_shard(block)  # expect: fsdp-layer-left-out
        fully_shard(self.model)
