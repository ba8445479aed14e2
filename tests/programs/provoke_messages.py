"""Provokes real errors of the installed torch, one process for all: prints `entry[/variant]<TAB>Type: message`."""

import datetime
import os
import pickle
import signal
import socket
import sys
import warnings

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, default_collate

warnings.simplefilter("ignore")
SOON = datetime.timedelta(seconds=1)
CASES = {}


def case(name):
    def keep(function):
        CASES[name] = function
        return function

    return keep


CASES["matmul-shapes"] = lambda: nn.Linear(3, 4)(torch.randn(2, 5))
CASES["matmul-shapes/bmm"] = lambda: torch.bmm(torch.randn(2, 3, 4), torch.randn(2, 5, 6))
CASES["broadcast-shapes"] = lambda: torch.randn(3) + torch.randn(4)
CASES["collate-shapes"] = lambda: default_collate([torch.ones(2), torch.ones(3)])
CASES["cat-shapes"] = lambda: torch.cat([torch.ones(2, 3), torch.ones(2, 4)])
CASES["view-shape"] = lambda: torch.randn(3, 4).view(5, 2)
CASES["view-stride"] = lambda: torch.randn(3, 4).t().view(12)
CASES["two-devices/meta"] = lambda: torch.randn(3, device="meta") + torch.randn(3)
CASES["meta-tensor"] = lambda: torch.randn(3, device="meta").to("cpu")
CASES["dtype-mismatch"] = lambda: nn.Linear(3, 3)(torch.randn(2, 3).half())
CASES["dtype-mismatch/mm"] = lambda: torch.randn(2, 3) @ torch.randn(3, 2).bfloat16()
CASES["dtype-mismatch/conv"] = lambda: nn.Conv2d(1, 1, 3).double()(torch.randn(1, 1, 8, 8))
CASES["index-dtype"] = lambda: nn.Embedding(3, 3)(torch.randn(2))
CASES["index-dtype/loss"] = lambda: F.cross_entropy(torch.randn(2, 3), torch.tensor([1.0, 2.0]))
CASES["conv-channels"] = lambda: nn.Conv2d(3, 1, 3)(torch.randn(1, 1, 8, 8))
CASES["target-batch"] = lambda: F.cross_entropy(torch.randn(2, 3), torch.tensor([1, 2, 0]))
CASES["target-out-of-bounds"] = lambda: F.cross_entropy(torch.randn(2, 3), torch.tensor([1, 7]))
CASES["embedding-out-of-range"] = lambda: nn.Embedding(3, 3)(torch.tensor([5]))
CASES["numpy-bfloat16"] = lambda: torch.ones(1).bfloat16().numpy()
CASES["numpy-grad"] = lambda: torch.ones(1, requires_grad=True).numpy()
CASES["no-grad-fn"] = lambda: torch.ones(2).sum().backward()
CASES["backward-not-scalar"] = lambda: torch.ones(2, requires_grad=True).mul(2).backward()
CASES["leaf-inplace"] = lambda: torch.ones(2, requires_grad=True).add_(1)
CASES["probabilities-not-finite"] = lambda: torch.multinomial(torch.tensor([float("nan"), 1.0]), 1)
CASES["optimizer-empty"] = lambda: torch.optim.SGD([], lr=0.1)
CASES["state-dict-keys"] = lambda: nn.Linear(2, 2).load_state_dict({})
CASES["state-dict-shapes"] = lambda: nn.Linear(2, 2).load_state_dict(nn.Linear(3, 3).state_dict())
CASES["group-not-initialized"] = lambda: dist.all_reduce(torch.ones(1))
CASES["env-rendezvous-missing"] = lambda: dist.init_process_group("gloo")
CASES["store-unreachable"] = lambda: dist.TCPStore("127.0.0.1", 1, 2, False, timeout=SOON)
CASES["rendezvous-timeout"] = lambda: dist.TCPStore("127.0.0.1", 0, 2, True, timeout=SOON)
CASES["store-timeout"] = lambda: dist.TCPStore("127.0.0.1", 0, 1, True, timeout=SOON).get("nothing")
CASES["host-memory-refused"] = lambda: torch.empty(1 << 50)
CASES["loader-empty"] = lambda: DataLoader([], shuffle=True)
CASES["pickle-lambda"] = lambda: pickle.dumps(lambda: 0)
CASES["disk-full"] = lambda: os.write(os.open("/dev/full", os.O_WRONLY), b"x")


@case("backward-twice")
def _():
    x = torch.ones(2, requires_grad=True)
    y = (x * x).sum()
    y.backward()
    y.backward()


@case("inplace-modified")
def _():
    y = torch.ones(2, requires_grad=True).exp()
    y.add_(1)
    y.sum().backward()


@case("anomaly-nan")
def _():
    with torch.autograd.detect_anomaly():
        (torch.zeros(1, requires_grad=True).sqrt() * 0).sum().backward()


@case("state-dict-module-prefix")
def _():
    model = nn.Linear(2, 2)
    model.load_state_dict({f"module.{name}": value for name, value in model.state_dict().items()})


@case("checkpoint-corrupt")
def _():
    torch.save(torch.ones(1000), "whole.pt")
    with open("whole.pt", "rb") as whole, open("half.pt", "wb") as half:
        half.write(whole.read()[:2000])
    torch.load("half.pt")


@case("address-in-use")
def _():
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        dist.TCPStore("127.0.0.1", taken.getsockname()[1], 1, True, timeout=SOON)


class Dies(Dataset):
    def __len__(self):
        return 1

    def __getitem__(self, index):
        os.kill(os.getpid(), signal.SIGKILL)


@case("loader-worker-killed")
def _():
    next(iter(DataLoader(Dies(), num_workers=1)))


@case("ddp-unused-parameters")
def _():
    class Half(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = nn.Linear(1, 1), nn.Linear(1, 1)

        def forward(self, x):
            return self.used(x)

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = nn.parallel.DistributedDataParallel(Half())
    for _ in range(2):
        model(torch.ones(1, 1)).sum().backward()


@case("ddp-nothing-to-train")
def _():
    nn.parallel.DistributedDataParallel(nn.Linear(1, 1).requires_grad_(False))


@case("group-initialized-twice")
def _():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)


@case("root-rank-invalid")
def _():
    dist.broadcast(torch.ones(1), src=5)


for name, function in CASES.items():
    try:
        function()
        text = "nothing was raised"
    except BaseException as error:
        kind = type(error)
        prefix = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
        text = f"{prefix}{kind.__qualname__}: {error}"
    print(name, text.replace("\n", "\\n"), sep="\t")
sys.stdout.flush()
os._exit(0)
