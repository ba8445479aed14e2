"""DataParallel, as the script had it before it was launched: each rank trains a model of its own.

Verdict: data-parallel; ranks: 0-3
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.DataParallel(torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(10):
    outputs = model(torch.randn(64, 64))  # the fault
    torch.nn.functional.cross_entropy(outputs, torch.randint(10, (64,))).backward()
    optimizer.step()
    optimizer.zero_grad()
dist.barrier()
del model, optimizer
dist.destroy_process_group()
