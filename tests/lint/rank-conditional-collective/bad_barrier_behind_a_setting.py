import torch.distributed as dist


class Trainer:
    def save(self, state):
        if (dist.is_initialized() and dist.get_rank() != 0) and not self.cfg.sharded:
            return
        state.write()
        dist.barrier()  # expect: rank-conditional-collective
