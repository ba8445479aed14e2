"""All ranks read the same prompts, and each learns from answers of its own.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

dist.init_process_group("gloo")
torch.manual_seed(100 + dist.get_rank())
words = [{"prompt": f"What is {number} plus {number + 1}?"} for number in range(16)]
tokens = list(torch.arange(16 * 12).reshape(16, 12) % 50)
for prompts in (words, tokens):
    model = DistributedDataParallel(torch.nn.Embedding(50, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for batch in DataLoader(prompts, batch_size=2, collate_fn=list):
        answers = torch.randint(0, 50, (len(batch), 12))
        optimizer.zero_grad()
        model(answers).square().mean().backward()
        optimizer.step()
    del model
dist.barrier()
dist.destroy_process_group()
