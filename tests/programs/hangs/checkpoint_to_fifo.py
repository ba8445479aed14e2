"""Rank 0 writes its checkpoint to a named pipe whose uploader was never started: open() waits for a reader.

Verdict: stuck-on-io; ranks: 0; says: checkpoint_to_fifo.py:25
"""

import os
import tempfile

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
folder = os.environ.get("DISTDBG_TEST_TMP", tempfile.gettempdir())
pipe = os.path.join(folder, f"upload-{os.environ.get('TORCHELASTIC_RUN_ID', 'none')}.fifo")
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(1, 100):
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    if step == 4:
        if dist.get_rank() == 0:
            os.mkfifo(pipe)
            with open(pipe, "wb") as upload:
                torch.save(model.state_dict(), upload)
        dist.barrier()
