import logging

import torch.distributed as dist

logger = logging.getLogger(__name__)


def tell(text):
    logger.info(text)


def finish(rank, results, model):
    if rank == 0:
        dist.barrier()  # expect: rank-conditional-collective
    else:
        results.append("waits")
        model.eval()
        tell("rank 0 comes")
        print(", ".join(results))
