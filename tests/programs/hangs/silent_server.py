"""Rank 1 asks a tokenizer service over a socket; the service accepts the connection and never answers.

Verdict: stuck-on-io; ranks: 1; says: silent_server.py:17
On two ranks.
"""

import socket

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def ask(service, text):
    with socket.create_connection(service.getsockname()) as connection:
        connection.sendall(text)
        return connection.recv(4096)


dist.init_process_group("gloo")
service = socket.create_server(("127.0.0.1", 0))
model = DistributedDataParallel(torch.nn.Linear(8, 8))
for step in range(100):
    if step == 3 and dist.get_rank() == 1:
        ask(service, b"to be or not to be")
    model(torch.ones(4, 8)).sum().backward()
