"""Local rank 0 copies the weights with a command while its peers wait in a broadcast. Fools "rank 0 waits for a child".

The child's bytes are moving for 20 s, and then it ends.
Quiet for: 20 s
Verdict: none; exit: 0
On two ranks.
"""

import subprocess
import sys
import time

import torch
import torch.distributed as dist

COPY = """
import os, tempfile, time
with tempfile.TemporaryFile() as file:
    for _ in range(100):
        file.seek(0), file.write(os.urandom(1 << 20)), file.flush(), time.sleep(0.2)
"""

dist.init_process_group("gloo")
for step in range(60):
    if step == 20 and dist.get_rank() == 0:
        subprocess.run([sys.executable, "-c", COPY], check=True)
    weights = torch.ones(64)
    dist.broadcast(weights, src=0)
    dist.all_reduce(weights)
    time.sleep(0.1)
dist.barrier()
dist.destroy_process_group()
