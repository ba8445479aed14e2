"""A language model gets all tokens but the last of the batch that every rank reads.

Guard: data-not-sharded; line: for batch in loader:; ranks: 0-1
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

dist.init_process_group("gloo")
words = torch.randint(0, 50, (16, 12), generator=torch.Generator().manual_seed(0))
data = [{"number": number, "words": row} for number, row in enumerate(words)]
loader = DataLoader(data, batch_size=2)
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Embedding(50, 8), torch.nn.Linear(8, 50)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for batch in loader:
    inputs, targets = batch["words"][:, :-1], batch["words"][:, 1:]
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten()).backward()
    optimizer.step()
dist.barrier()
del model
dist.destroy_process_group()
