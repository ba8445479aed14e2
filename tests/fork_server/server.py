"""A Python that has imported torch, and forks where a test's command would start one.

A job of four ranks imports torch six times: that is most of what a test of a launch costs. Forked are commands of ours,
a launch's agents and torchruns (`_STARTERS`), what takes a dump (`_CAPTURE`), and ranks (`_is_rank`). Each starter
forks a server of its own as its first act, while it has no thread, and asks that one when it starts a Python of these
kinds.

What a process can see of itself and of others is as if it had been started: its parent (it is forked twice, and adopted
by who asked), command line and environment (in /proc, too), folder, session, descriptors, `__main__` and path. Three
things differ: torch is there before it is imported, the outermost frame of a rank, which is boot.py's, is there twice
(this file is compiled under that name), and nothing is destroyed at the end, neither torch nor what a script's globals
hold (`_end`).

    python -u server.pyc FD      FD: a socket, a request in each packet
"""

from __future__ import annotations

import array
import atexit
import builtins
import ctypes
import faulthandler
import fcntl
import importlib
import importlib.util
import inspect
import json
import os
import pkgutil
import re
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import types
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

_PACKAGE = Path(importlib.util.find_spec("distdbg").origin).parent  # type: ignore[union-attr, arg-type]
BOOT = f"{_PACKAGE}/worker/boot.py"
#: How the commands begin, after Python and -u: those that start processes which import torch, and ranks.
_TORCHRUNS = (["-m", "torch.distributed.run"], [f"{_PACKAGE}/launch/agent/torchrun.py"])
_OURS = (["-m", "distdbg"], [f"{_PACKAGE}/__main__.py"])
_STARTERS = (*_OURS, *_TORCHRUNS, [f"{_PACKAGE}/launch/agent/agent.py"])
#: The code of a test that changes a figure of ours first, `python -c CODE launch …`
_OUR_MAIN = re.compile(r"(?:import|from) distdbg\..*; from distdbg\.cli import main; main\(\)")
#: Of ours (`memory analyze`), those that compute themselves, with as many threads as they like.
_COMPUTE = {"analyze", "overfit", "preflight", "replay"}
#: Of ours, what starts others on simulated devices, and computes nothing: a server with their libraries forks it, too.
_ON_DEVICES = ["-m", "distdbg", "rehearse"]
_LIBRARIES = "LD_LIBRARY_PATH"
#: The module of the simulated devices that torch calls when it is imported
_DEVICES = "gpu_box_shadow"
_CAPTURE = [f"{_PACKAGE}/launch/watch/capture.py"]
#: It makes small models, for which one thread is enough.
_MODELS = [f"{_PACKAGE}/shrink/child.py"]
_RANK = [BOOT]
#: What these commands import of ours one by one, and where.
_LOADED = (
    "launch.run", "launch.live.explain", "launch.watch.capture", "launch.backends",
    "launch.backends.local.backend", "launch.backends.local.nodes", "launch.backends.slurm.backend",
    "launch.backends.ssh.backend", "launch.plan.program", "launch.plan.quick_preflight", "launch.io.control",
    "collect.files.sources", "collect.machine.versions",
)  # fmt: skip
_WHOLLY_LOADED = ("cli/commands", "collect/runs", "diagnosis", "lint", "launch/agent")
#: Variables that the interpreter, torch or a library reads once, when it starts: no fork can obey them.
_READ_AT_START = (
    "PYTHON", "LD_", "OMP_", "MKL_", "KMP_", "GOMP_", "MALLOC_", "TORCH_LOGS", "TORCHDYNAMO",
    "TORCHINDUCTOR", "TORCH_COMPILE", "TORCH_CPP_LOG", "TORCH_SHOW", "TORCH_DEVICE_BACKEND",
)  # fmt: skip
_OBEYED = {"PYTHONUNBUFFERED", "PYTHONFAULTHANDLER"}
Kind = frozenset[tuple[str, str]]
Servers = dict[Kind, socket.socket]


def kind_of(environment: Mapping[str, str]) -> Kind:
    """Of the variables that no fork can obey, those that are set: a server of the same kind is needed."""
    return frozenset((k, v) for k, v in environment.items() if k.startswith(_READ_AT_START) and k not in _OBEYED)


#: A process hands on which of these it ignores.
_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
_LARGEST_REQUEST = 1 << 18
_PR_SET_PDEATHSIG, _PR_SET_MM, _PR_SET_MM_MAP, _PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 1, 35, 14, 36, 37
_libc = ctypes.CDLL(None, use_errno=True)
_start = subprocess.Popen._execute_child  # type: ignore[attr-defined]
_ARGUMENTS = list(inspect.signature(_start).parameters)[1:]
_asking = threading.Lock()
#: What /proc shows of this process lies in these.
_shown: list[ctypes.Array[ctypes.c_char]] = []
#: What this one can be asked for.
_kind = kind_of(os.environ)
#: The path of a Python that was given neither a script nor PYTHONPATH.
_path = [path for path in sys.path[1:] if path not in os.environ.get("PYTHONPATH", "").split(os.pathsep)]


@dataclass(frozen=True)
class Request:
    """A process to be: its descriptors come with it, and get these numbers."""

    words: list[str]
    environment: dict[str, str]
    folder: str
    umask: int
    ignored: list[int]
    numbers: list[int]
    own_session: bool
    dies_with_parent: bool


def _arguments(words: list[str]) -> list[str]:
    return words[2:] if words[1:2] == ["-u"] else words[1:]


def _is_rank(words: list[str]) -> bool:
    """Of ours, or a script as torchrun starts it."""
    return _arguments(words)[:1] == _RANK or (words[1:2] == ["-u"] and words[2].endswith(".py"))


def _starts_on_devices(words: list[str]) -> bool:
    return _arguments(words)[:3] == _ON_DEVICES


def _is_starter(words: list[str]) -> bool:
    given = _arguments(words)
    ours = given[:1] == ["-c"] and _OUR_MAIN.fullmatch(given[1]) is not None
    return (ours or _begins_with(given, _STARTERS)) and not _COMPUTE & {*given[1:4]}


def _begins_with(words: list[str], beginnings: Iterable[list[str]]) -> bool:
    return any(words[: len(beginning)] == beginning for beginning in beginnings)


def _server_for(words: list[str], environment: Mapping[str, str], servers: Servers) -> socket.socket | None:
    if not words or words[0] != sys.executable:
        return None
    if _is_rank(words):
        if _arguments(words)[:1] != _RANK and not _begins_with(_arguments(sys.orig_argv), _TORCHRUNS):
            return None  # a script, but not of a job
    else:  # the others compute nothing
        given = _arguments(words)
        if not _is_starter(words) and given[:1] != _CAPTURE and given[:1] != _MODELS:
            return None
        environment = {**environment, "OMP_NUM_THREADS": "1"}
    kind = kind_of(environment)
    if _starts_on_devices(words):
        kind = next((other for other in servers if _LIBRARIES in dict(other)), kind)
    return servers.get(kind)


def use(servers: Servers) -> None:
    """From now on this process asks these for the processes that can be forked, and starts the others."""

    def execute(popen: subprocess.Popen[bytes], *values: object) -> None:
        given = dict(zip(_ARGUMENTS, values, strict=True))
        if not _asked(servers, popen, given):
            _start(popen, *values)

    subprocess.Popen._execute_child = execute  # type: ignore[attr-defined]


def _asked(servers: Servers, popen: subprocess.Popen[bytes], given: dict[str, Any]) -> bool:
    words = [os.fsdecode(word) for word in given["args"]] if isinstance(given["args"], list | tuple) else []
    environment = dict(os.environ if given["env"] is None else given["env"])
    before = given["preexec_fn"]
    dies_with_parent = getattr(before, "__qualname__", "").startswith("TorchrunProcess.")
    server = _server_for(words, environment, servers)
    if server is None or given["shell"] or given["executable"] or (before and not dies_with_parent):
        return False
    streams = [given[name] for name in ("p2cread", "c2pwrite", "errwrite")]
    kept = [number if stream == -1 else stream for number, stream in enumerate(streams)] + list(given["pass_fds"])
    mask = os.umask(0o077)
    os.umask(mask)
    folder = os.path.abspath(os.fsdecode(given["cwd"] or "."))
    numbers = [0, 1, 2, *given["pass_fds"]]
    ignored = [int(number) for number in _SIGNALS if signal.getsignal(number) is signal.SIG_IGN]
    session = bool(given["start_new_session"])
    request = Request(words, environment, folder, mask, ignored, numbers, session, dies_with_parent)
    reader, writer = os.pipe2(os.O_CLOEXEC)
    was = ctypes.c_int()
    with _asking, os.fdopen(reader) as answer:
        _libc.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(was))
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
        socket.send_fds(server, [json.dumps(asdict(request)).encode()], [writer, *kept])
        os.close(writer)
        popen.pid = int(answer.readline())
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, was.value)
    popen._child_created = True  # type: ignore[attr-defined]
    pipes = [given[name] for name in ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")]
    popen._close_pipe_fds(*pipes)  # type: ignore[attr-defined]
    return True


def next_process(requests: socket.socket) -> tuple[Request, list[int]]:
    """Wait for requests until the other end is closed. Returns in each new process, which has been adopted by then."""
    while True:
        data, descriptors, _, _ = socket.recv_fds(requests, _LARGEST_REQUEST, 64)
        if not data:
            os._exit(0)
        answer, *kept = [fcntl.fcntl(number, fcntl.F_DUPFD, 300) for number in descriptors]
        go, tell = os.pipe()
        number, numbered = os.pipe()
        between = os.fork()
        if between == 0:
            pid = os.fork()
            if pid == 0:
                os.close(tell)
                os.read(go, 1)  # ends when the server knows that `between` has
                requests.detach()
                return Request(**json.loads(data)), kept
            os.write(numbered, b"%d\n" % pid)
            os._exit(0)
        os.waitpid(between, 0)
        os.write(answer, os.read(number, 32))
        for descriptor in (*descriptors, answer, *kept, go, tell, number, numbered):
            os.close(descriptor)


def become(request: Request, kept: list[int]) -> socket.socket | None:
    """Take over what the request says. Gives a socket where this is to be that process's own server instead."""
    if request.dies_with_parent:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if request.own_session:
        os.setsid()
    os.chdir(request.folder)
    os.umask(request.umask)
    for number in _SIGNALS:
        usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, signal.SIG_IGN if number in request.ignored else usual)
    for number, descriptor in zip(request.numbers, kept, strict=True):
        os.dup2(descriptor, number)
    _close_all_but(*request.numbers)
    if _is_starter(request.words):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        parent = os.getpid()
        if os.fork() == 0:
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            ours.detach()
            nothing = os.open(os.devnull, os.O_RDWR)
            for number in range(3):
                os.dup2(nothing, number)
            _close_all_but(0, 1, 2, theirs.fileno())
            return theirs if os.getppid() == parent else None
        theirs.close()
        use({_kind: ours})
    if _is_rank(request.words):  # what it loads of these is its own
        for name in [name for name in sys.modules if name.startswith("distdbg.worker")]:
            del sys.modules[name]
    os.environ.clear()
    os.environ.update(request.environment)
    _show(request.words, request.environment)
    if devices := sys.modules.get(_DEVICES):
        devices.autoload()  # torch calls it when it is imported; it obeys variables
        if _starts_on_devices(request.words):  # itself it has no devices: started, it would not find NVML's library
            importlib.import_module("distdbg.collect.machine.gpus")._LIBRARY = "none"
    for generator in (sys.modules["torch"].default_generator, sys.modules["numpy"].random):
        generator.seed()  # as they are when they are imported: each process draws other numbers
    tempfile.tempdir = None  # found anew, by this process's variables
    if os.environ.get("PYTHONFAULTHANDLER"):
        faulthandler.enable()
    sys.orig_argv[:] = request.words
    return None


def _close_all_but(*numbers: int) -> None:
    kept = sorted({*numbers})
    for first, last in zip([-1, *kept], [*kept, 4096], strict=True):
        if first + 1 < last:  # an empty range would be all of them
            os.closerange(first + 1, last)


def _show(words: list[str], environment: Mapping[str, str]) -> None:
    """In /proc/PID/cmdline and environ, where others read them: the kernel is told where they lie. OSError where it
    has not been built for that (CONFIG_CHECKPOINT_RESTORE)."""
    ends = []
    for lines in (words, [f"{name}={value}" for name, value in environment.items()]):
        text = b"".join(os.fsencode(line) + b"\0" for line in lines)
        _shown.append(ctypes.create_string_buffer(text, len(text)))
        ends += [ctypes.addressof(_shown[-1]), ctypes.addressof(_shown[-1]) + len(text)]
    stat = Path("/proc/self/stat").read_text().rpartition(")")[2].split()  # begins with the third field of proc(5)
    code, stack, data = ([int(stat[number - 3]) for number in fields] for fields in ((26, 27), (28,), (45, 46, 47)))
    _libc.sbrk.restype = ctypes.c_void_p
    # struct prctl_mm_map of linux/prctl.h
    layout = array.array("Q", [*code, *data, _libc.sbrk(0), *stack, *ends, 0]).tobytes()
    layout += array.array("i", [0, -1]).tobytes()
    if _libc.prctl(_PR_SET_MM, _PR_SET_MM_MAP, layout, len(layout), 0):
        raise OSError(ctypes.get_errno(), "PR_SET_MM_MAP")


def main_module(words: list[str]) -> None:
    """`__main__`, the path and the arguments, as the interpreter makes them."""
    main = types.ModuleType("__main__")
    main.__builtins__ = builtins  # type: ignore[attr-defined]
    main.__annotations__ = {}
    sys.modules["__main__"] = main
    given = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if words[0] == "-m":
        sys.path[:] = [os.getcwd(), *given, *_path]
        sys.argv = words[1:]
    elif words[0] == "-c":
        sys.path[:] = ["", *given, *_path]
        sys.argv = ["-c", *words[2:]]
    else:
        sys.path[:] = [os.path.dirname(os.path.realpath(words[0])), *given, *_path]
        sys.argv = words
        main.__file__ = os.path.abspath(words[0])
        main.__cached__ = None  # type: ignore[attr-defined]
        main.__loader__ = SourceFileLoader("__main__", main.__file__)


def load_all() -> None:
    """What the commands import one by one, and the page's templates, which are compiled when they are first used."""
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"  # each process does it itself, by its own variables
    import torch._dynamo  # DistributedDataParallel and optimizers import it
    import torch.distributed.run  # noqa: F401
    from torch.distributed.elastic.rendezvous import c10d_rendezvous_backend, dynamic_rendezvous  # noqa: F401

    from distdbg.report.page import renderer

    if importlib.util.find_spec(_DEVICES):
        importlib.import_module(_DEVICES)
    # Who called, for events that nobody gets: torch looks through all modules for it, at each step of a rendezvous.
    dynamic_rendezvous.get_method_name = lambda depth=2: sys._getframe(depth).f_code.co_name
    for name in _LOADED:
        importlib.import_module(f"distdbg.{name}")
    for folder in _WHOLLY_LOADED:
        for found in pkgutil.walk_packages([f"{_PACKAGE}/{folder}"], f"distdbg.{folder.replace('/', '.')}."):
            importlib.import_module(found.name)
    for name in renderer.environment().list_templates(["html"]):
        renderer.environment().get_template(name)
    for library in weakref.finalize._registry:  # type: ignore[attr-defined]
        library.atexit = False  # its operators would be taken out of torch's tables one by one


def _end(code: object) -> None:
    """As the interpreter ends, but nothing is destroyed: to take torch apart is a third of a second of work in a fork,
    to which each page that it writes is copied first."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is None:
            continue
        try:
            stream.flush()
        except OSError:
            code = 120
    _libc.fflush(None)  # what C++ has printed
    os._exit(int(code or 0) & 0xFF)  # type: ignore[call-overload]


if __name__ == "__main__":
    import gc

    requests: socket.socket | None = socket.socket(fileno=int(sys.argv[1]))
    _show(sys.orig_argv, os.environ)
    requests.send(b"this file is read, and forks are possible")

    load_all()
    gc.collect()
    gc.freeze()
    while requests is not None:
        request, kept = next_process(requests)
        requests = become(request, kept)
    words = _arguments(request.words)
    main_module(words)
    try:
        if words[0] == "-m":
            runpy._run_module_as_main(words[1])  # type: ignore[attr-defined]
        elif words[0] == "-c":
            exec(words[1], sys.modules["__main__"].__dict__)
        else:
            main = sys.modules["__main__"]
            exec(compile(Path(words[0]).read_bytes(), main.__file__, "exec"), main.__dict__)  # type: ignore[arg-type]
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        _end(end.code)
    except Exception as error:
        inner = error.__traceback__ and error.__traceback__.tb_next  # without this file's frame
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error.with_traceback(inner), inner
        sys.excepthook(type(error), error, inner)
        _end(1)
    _end(0)
