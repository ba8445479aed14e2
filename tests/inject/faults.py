"""The faults that are planted in clients: a line each, and what must be said of it. Written before any run."""

from __future__ import annotations

from dataclasses import dataclass

#: Places that a client may have: a line `# here: <place>` is replaced by the fault. `batch` is in the data set, so that
#: a loader's worker may come there.
ANYWHERE = frozenset({"start", "step", "loss", "forward", "batch", "evaluation", "save"})
#: where each rank comes about equally often, and other ranks wait for one that does not go on
_SHARED = ANYWHERE - {"batch", "save"}
_TRAINING = frozenset({"step", "loss", "forward"})


@dataclass(frozen=True, slots=True)
class Fault:
    """`line` is the fault. `ids` are the findings that may be the first root, `codes` the launch's exit codes, 75 where
    it hangs."""

    name: str
    line: str
    ids: tuple[str, ...]
    codes: tuple[int, ...]
    places: frozenset[str] = _SHARED
    #: nothing may tell which of two sides is wrong: then both may be named
    ties: bool = False
    #: nothing of the process is left that could tell the line
    leaves_its_line: bool = True

    @property
    def hangs(self) -> bool:
        return 75 in self.codes


_STUCK = (75,)
_COLLECTIVES = ("rank-conditional-collective", "collective-mismatch", "collective-not-joined")
_REDUCES = (*_COLLECTIVES, "collective-shape-mismatch")
_PARTED = (*_COLLECTIVES, "group-deadlock", "uneven-inputs")

FAULTS = (
    Fault("sleeps", "__import__('time').sleep(3600)", ("stuck-in-python",), _STUCK),
    Fault("loops", "while True: pass", ("stuck-in-python",), _STUCK),
    Fault("locks", "lock = __import__('threading').Lock(); lock.acquire(); lock.acquire()", ("stuck-on-lock",), _STUCK),
    Fault("reads a pipe", "os.read(os.pipe()[0], 1)", ("stuck-on-io",), _STUCK),
    Fault("waits for a file", "while not os.path.exists('/never'): __import__('time').sleep(0.2)",
          ("stuck-in-python",), _STUCK),
    Fault("sleeps in C", "__import__('ctypes').CDLL(None).sleep(3600)", ("stuck-in-native", "stuck-in-python"), _STUCK),
    Fault("sleeps in C with the GIL", "__import__('ctypes').PyDLL(None).sleep(3600)", ("stuck-in-native",), _STUCK),
    Fault("stops", "os.kill(os.getpid(), 19)", ("process-stopped",), _STUCK),
    Fault("waits for a child", "__import__('subprocess').run(['sleep', '3600'])", ("stuck-on-io",), _STUCK),
    Fault("one barrier more", "torch.distributed.barrier()", _COLLECTIVES, _STUCK, _TRAINING, ties=True),
    Fault("one reduce more", "torch.distributed.all_reduce(torch.zeros(3))", _REDUCES,
          (*_STUCK, 134, 1), _TRAINING, ties=True),
    Fault("receives what nobody sends", "torch.distributed.recv(torch.zeros(1), src=0)", _PARTED, _STUCK, _TRAINING,
          ties=True),
    Fault("worker sleeps", "__import__('time').sleep(3600)", ("stuck-in-dataloader", "stuck-in-python"), _STUCK,
          frozenset({"batch"})),
    Fault("worker raises", "raise RuntimeError('a broken record')", ("rank-exception",), (1,), frozenset({"batch"})),
    Fault("worker is killed", "os.kill(os.getpid(), 9)", ("loader-worker-died", "rank-killed"), (1, 137),
          frozenset({"batch"}), leaves_its_line=False),
    Fault("raises", "raise ValueError('planted')", ("rank-exception",), (1,)),
    Fault("divides by zero", "1 // 0", ("rank-exception",), (1,)),
    Fault("sys.exit(3)", "__import__('sys').exit(3)", ("rank-exception",), (3,)),
    Fault("sys.exit(0)", "__import__('sys').exit(0)", ("rank-exited-early",), (1,)),
    Fault("os._exit(7)", "os._exit(7)", ("rank-exception",), (7,)),
    Fault("os._exit(0)", "os._exit(0)", ("rank-exited-early",), (1,)),
    Fault("is killed", "os.kill(os.getpid(), 9)", ("rank-killed",), (137,), leaves_its_line=False),
    Fault("segfaults", "__import__('ctypes').string_at(0)", ("rank-killed",), (139,)),
    Fault("aborts", "os.abort()", ("rank-killed",), (134,)),
)  # fmt: skip
