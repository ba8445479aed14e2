"""A script that notices: rank 0 says all that it can tell of its surroundings, and fails; the others wait to be ended.

A fact is a line of JSON on standard output. Each rank above 0 takes torchrun's SIGTERM in a way of its own (ENDS).
"""

import atexit
import ctypes
import json
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import traceback
import warnings
from pathlib import Path

value = 7


class Thing:
    def __init__(self, size):
        self.size = size


class Data:
    def __len__(self):
        return 6

    def __getitem__(self, i):
        if i == 5:
            raise IndexError(f"no item {i}")
        return Thing(i).size + 0.5


def tell(name, what):
    print(json.dumps({name: what}), flush=True)


def say_late(when):
    """Once the script itself is over: `__main__` and its classes must still be there."""
    main = sys.modules["__main__"]
    tell(when, [main.value, value, main is sys.modules[Thing.__module__], repr(pickle.loads(pickle.dumps(Thing)))])


def after_main():
    threading.main_thread().join()
    say_late("a late thread")


def in_child(number):
    return Thing(number), __name__, os.path.basename(__file__), sys.argv


def look_round():
    main = sys.modules["__main__"]
    tell("sys.argv", [sys.argv, sys.orig_argv[1:]])
    tell("__file__", [__file__, main.__file__, __name__, str(__spec__), main is sys.modules[Thing.__module__]])
    tell("folders", [os.getcwd(), sys.path])
    tell("stdin", sys.stdin.read())
    tell("threads", [thread.name for thread in threading.enumerate()])
    tell("pickled", pickle.dumps(Thing(3)).hex())
    for method in ("spawn", "fork", "forkserver"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            thing, *rest = pool.apply(in_child, [5])
            tell(method, [repr(type(thing)), thing.size, *rest])


def look_at_signals():
    tell("dispositions", {number.name: str(signal.getsignal(number)) for number in signal.Signals})
    status = Path("/proc/self/status").read_text().splitlines()
    tell("masks", [line for line in status if line.startswith(("SigBlk", "SigIgn", "SigCgt"))])


def use_torch():
    import io
    import logging

    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader

    logging.disable(logging.WARNING)  # what torch logs bears the time
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    file = io.BytesIO()
    torch.save(Thing(4), file)
    file.seek(0)
    tell("saved", repr(type(torch.load(file, weights_only=False))))
    model = DistributedDataParallel(torch.nn.Linear(4, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(0.1))
    forward = torch.compile(model.module, fullgraph=True, backend="aot_eager")
    step = torch.compile(optimizer.step, backend="eager")
    for _ in range(3):
        forward(torch.ones(2, 4)).sum().backward()
        step()
    tell("fullgraph", torch._dynamo.utils.counters["stats"])
    try:
        loss = model(torch.ones(2, 4)).sum()
        loss.backward()
        loss.backward()
    except RuntimeError:
        traceback.print_exc()
    warnings.warn("a warning", stacklevel=1)
    helper = threading.Thread(target=lambda: 1 / 0, name="helper")
    helper.start()
    helper.join()
    look_at_signals()
    # The reason why torchrun ends the others: not before they stand where they want to be ended.
    while len(standing := list(Path().glob("standing-*"))) < int(os.environ["WORLD_SIZE"]) - 1:
        time.sleep(0.02)
    for path in standing:
        path.unlink()
    sys.stdout.write("no newline at the end \r of this")
    sys.stdout.buffer.write(bytes(range(256)) + b"\n")
    for batch in DataLoader(Data(), batch_size=2, num_workers=1):
        tell("batch", batch.tolist())
        optimizer.zero_grad()
        model(batch.float()[:, None].expand(-1, 4)).sum().backward()
        optimizer.step()


def stand():
    Path(f"standing-{os.environ['RANK']}").touch()


def in_c(library):
    """Where no Python handler would ever be called."""
    stand()
    library.sleep(300)


def in_c_with_torch():
    import torch.distributed

    assert torch.distributed.is_available()
    in_c(ctypes.PyDLL(None))


def when_told(action):
    signal.signal(signal.SIGTERM, lambda *_: action())
    stand()
    while True:
        signal.pause()


def raise_error():
    raise ValueError("told to end")


#: Rank -> how it ends, and the exit code that torchrun then tells.
ENDS = {
    1: (-15, lambda: in_c(ctypes.CDLL(None))),  # without the GIL
    2: (-15, in_c_with_torch),  # and holds the GIL
    3: (7, lambda: when_told(lambda: sys.exit(7))),
    4: (1, lambda: when_told(lambda: sys.exit("the end"))),
    5: (9, lambda: when_told(lambda: os._exit(9))),
    6: (1, lambda: when_told(raise_error)),
    7: (-9, lambda: when_told(lambda: os.kill(os.getpid(), signal.SIGKILL))),
}

if __name__ == "__main__":
    rank = int(os.environ["RANK"])
    if rank:
        ENDS[rank][1]()
    atexit.register(say_late, "at exit")
    threading.Thread(target=after_main).start()
    look_round()
    look_at_signals()
    use_torch()
