"""Classify stack frames: the only place that reads a frame's file and function.

`origin_of(file)` says whose code a file is, `activity_of(file, function)` what a frame of torch or of the standard
library is busy with. Both go by the names alone, because a stack may come from another machine: a file is known by the
folder that installs packages (`site-packages`), by the folder of a Python installation, or, in a source checkout and in
names that a profiler or py-spy has shortened, by files that only that package has.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from enum import Enum
from functools import lru_cache
from typing import TypeVar

from distdbg.evidence.ops import SETUP, of_kind

_Meaning = TypeVar("_Meaning")


class Origin(Enum):
    """The origin of a file: user, torch, framework, …"""

    USER = "user"
    TORCH = "torch"
    #: runs the training loop or wraps the model: Trainer, Lightning, accelerate, DeepSpeed, Megatron, Ray
    FRAMEWORK = "framework"
    #: starts ranks: torchrun, `accelerate launch`, Ray's worker process
    LAUNCHER = "launcher"
    LIBRARY = "library"
    STANDARD = "standard library"
    OURS = "distdbg"
    #: Python code that no person wrote: exec of a string, torch.compile's and FX's output
    GENERATED = "generated"
    #: C, C++, CUDA: a shared library, a C++ source, or no file at all
    NATIVE = "native"

    @property
    def is_python(self) -> bool:
        return self is not Origin.NATIVE


class Activity(Enum):
    """What a frame is busy with, as far as its file and function tell."""

    #: the engine runs the backward graph
    AUTOGRAD = "autograd"
    #: a function of torch.distributed that other ranks must call, too
    COLLECTIVE = "collective"
    #: rendezvous, init_process_group, new_group
    GROUP_SETUP = "process-group set-up"
    #: a collective of objects turns them into bytes or back, and waits for no rank
    PICKLING = "pickling"
    #: other code of torch.distributed: pipelines, FSDP's hooks, checkpoints
    DISTRIBUTED = "torch.distributed"
    #: the wrapper of a data-parallel model: DDP
    DATA_PARALLEL = "DistributedDataParallel"
    DEVICE_WAIT = "wait for a device"
    OPTIMIZER = "optimizer"
    #: the loop in the main process that waits for batches
    LOADER = "data loader"
    LOADER_WORKER = "data loader worker"
    LOCK = "lock"
    #: a lock or a queue that is shared with other processes
    SHARED_LOCK = "lock between processes"
    EVENT_LOOP = "event loop"
    SELECT = "select"
    #: waits for a child that runs Python, or talks to one
    CHILD = "child process"
    #: waits for another program
    SUBPROCESS = "subprocess"
    #: torch builds a C++ extension, or waits for the rank that does
    EXTENSION = "C++ extension"
    EXTENSION_BUILD = "build of a C++ extension"
    #: polls for a lock file that another process keeps
    LOCK_FILE = "lock file"
    IMPORT = "import"
    DOWNLOAD = "download"
    #: torch.compile, Triton
    COMPILATION = "compilation"
    LOGGING = "logging"
    #: the standard library's own code below a thread's or a child's first function
    THREAD_START = "start of a thread"
    CHILD_START = "start of a child process"
    SHUTDOWN = "interpreter shutdown"
    OTHER = "other"

    @property
    def of_torch_distributed(self) -> bool:
        return self in (Activity.COLLECTIVE, Activity.GROUP_SETUP, Activity.PICKLING, Activity.DISTRIBUTED)


class AllocatedFor(Enum):
    """What a frame of torch or of a framework allocates device memory for."""

    #: FSDP gathers parameters, into the storages of its flat ones too
    PARAMETERS = "gathered parameters"
    #: DataParallel copies parameters to another device
    REPLICAS = "copies of parameters"
    #: DDP makes its buckets, and makes them again in the order in which gradients came
    BUCKETS = "gradient buckets"
    #: DataParallel, DDP or FSDP copies a batch to its device, below the model's forward
    BATCH = "batch of a wrapper"
    #: a framework copies a batch; below a forward accelerate moves activations by the same function
    BATCH_OF_FRAMEWORK = "batch of a framework"


class TorchCall(Enum):
    """What a function of torch costs a step, where a profile names it."""

    #: `print(tensor)` and `f"{tensor}"` read the values
    PRINT = "print"
    #: DDP broadcasts its buffers
    BUFFERS = "buffers"
    #: DataParallel's forward
    DATA_PARALLEL = "data parallel"
    #: a loader starts or ends its workers
    WORKERS = "loader workers"


# -- whose code ----------------------------------------------------------------------------------------------------

_PYTHON_SUFFIXES = (".py", ".pyc", ".pyw", ".pyx", ".ipynb")
#: `site-packages/torch/…`, also below an egg or a wheel that is imported as an archive
#: The last: where gpu_box keeps torch's CUDA build.
_INSTALLED = re.compile(
    r"(?:(?:^|/)(?:site|dist)-packages/(?:[^/]+\.(?:egg|whl|zip)/)?|/distdbg/gpu-box/torch-[^/]+/)(.+)"
)
#: `/usr/lib/python3.11/threading.py`, `/opt/python/lib/python313.zip/…`, a checkout of CPython
_STANDARD = re.compile(
    r"(?:^|/)(?:lib(?:64)?/python\d+\.\d+t?|python\d{2,3}\.zip|Python\.framework/Versions/[\d.]+/lib/python[\d.]+)/"
    r"(?:lib-dynload/)?(.+)|/[Cc]?[Pp]ython[^/]*/Lib/(.+)"
)
#: py-spy and profilers shorten a standard library's file to what follows its folder
_STANDARD_PACKAGES = frozenset(
    {"asyncio", "collections", "concurrent", "ctypes", "email", "encodings", "html", "http", "importlib", "json",
     "logging", "multiprocessing", "pathlib", "re", "sqlite3", "tomllib", "unittest", "urllib", "xml", "zipfile",
     "zoneinfo"}
)  # fmt: skip
#: `exec` names its code as its caller likes; these are what a person typed
_TYPED = ("<stdin>", "<console>", "<ipython-input", "<doctest", "<cell ")
_COMPILED = re.compile(r"/torchinductor_[^/]+/|/torch_compile_debug/|/\.triton/cache/|\.fx_codegen|/fxgraph/")

_FRAMEWORKS = frozenset({
    "accelerate", "transformers", "trl", "lightning", "pytorch_lightning", "lightning_fabric", "deepspeed", "megatron",
    "torchtitan", "torchtune", "ray", "composer", "ignite", "fairseq", "fairseq2", "colossalai", "nemo", "axolotl",
})  # fmt: skip
#: Packages of the deep-learning world, for names that were shortened to what follows `site-packages`.
_PACKAGES = _FRAMEWORKS | {
    "torch", "torchvision", "torchaudio", "torchdata", "torchao", "torchmetrics", "functorch", "numpy", "scipy",
    "pandas", "datasets", "evaluate", "peft", "timm", "apex", "xformers", "flash_attn", "triton", "transformer_engine",
    "fsspec", "tqdm", "wandb", "hydra", "omegaconf", "PIL", "safetensors", "tokenizers", "huggingface_hub", "zmq",
    "click", "fire", "ipykernel", "IPython", "tornado", "traitlets", "mpi4py", "distdbg",
}  # fmt: skip
#: Files that only torch has: a user's own folder may well be called `torch`.
_OF_TORCH = (
    r"nn/(?:modules|parallel|functional\.py|init\.py|parameter\.py|attention|utils)|optim/\w+\.py|fx/|_\w+(?:/|\.py)"
    r"|utils/(?:data/|checkpoint\.py|cpp_extension\.py|file_baton\.py|hooks\.py|tensorboard/|_\w+)|cuda/\w+\.py"
    r"|distributed/(?:distributed_c10d|c10d_logger|rendezvous|device_mesh|run|launch|_\w+)\.py"
    r"|distributed/(?:_\w+|fsdp|elastic|launcher|tensor|checkpoint|algorithms|pipelining|rpc|nn|optim|autograd)/"
    r"|autograd/(?:__init__|function|functional|graph|grad_mode|profiler)\.py|amp/(?:autocast_mode|grad_scaler)\.py"
    r"|multiprocessing/(?:spawn|reductions|queue|pool)\.py|(?:serialization|functional|storage|overrides|hub)\.py"
)
#: Ends where the package of a source checkout begins: torch is known by its files, others by their repositories' layout
#: (`src/accelerate/`, `Megatron-LM/megatron/`, `ray/python/ray/`, `trl/trl/`), so that `trl/train.py` is the user's.
#: Of ours, `distdbg/launch/` alone may be the repository's folder of scripts.
_CHECKOUT = re.compile(
    rf"(?:^|/)(?=torch/(?:{_OF_TORCH})|distdbg/worker/)"
    rf"|/(?:src|python)/(?=(?:{'|'.join(sorted(_FRAMEWORKS))})/)"
    rf"|/(?P<name>{'|'.join(sorted(_FRAMEWORKS | {'distdbg'}))})[-\w.]*/(?=(?P=name)/)"
    r"|/(?:Megatron[-\w.]*/(?=megatron/)|DeepSpeed[-\w.]*/(?=deepspeed/)|NeMo[-\w.]*/(?=nemo/)"
    r"|ColossalAI[-\w.]*/(?=colossalai/))"
)
#: the server of torch.distributed.debug, by the path below sys.path
DEBUG_SERVER = "torch/distributed/debug/"
_LAUNCHERS = re.compile(
    r"torch/distributed/(?:run\.py|launch\.py|launcher/|elastic/)|torch/multiprocessing/spawn\.py"
    r"|accelerate/(?:commands/|launchers\.py)|deepspeed/launcher/|ray/_private/workers?(?:/|\.py)|ray/scripts/"
    r"|(?:lightning/(?:fabric|pytorch)|lightning_fabric|pytorch_lightning)/strategies/launchers/"
)


def origin_of(file: str) -> Origin:
    """The origin of `file`, a path as Python, py-spy, a profiler or a snapshot names it."""
    return _locate(file)[0]


def is_user(file: str) -> bool:
    return _locate(file)[0] is Origin.USER


def module_path(file: str) -> str:
    """The file below its entry of sys.path: `torch/optim/adam.py`, `threading.py`; the user's files as they are."""
    return _locate(file)[1]


@lru_cache(maxsize=4096)
def package_of(file: str) -> str:
    """`torch` of `…/site-packages/torch/_tensor.py`, `threading` of the standard library; else the file's name."""
    origin, path = _locate(file)
    if origin in (Origin.USER, Origin.GENERATED, Origin.NATIVE):
        path = path.strip("<>").rpartition("/")[2]
    return path.partition("/")[0].partition(".")[0] or "C"


@lru_cache(maxsize=16384)
def _locate(file: str) -> tuple[Origin, str]:
    """(whose code it is, the file below its entry of sys.path)."""
    if file.startswith("<"):
        return _of_no_file(file)
    if not _is_python_file(file):
        return Origin.NATIVE, file
    if path := _installed_path(file):
        return _of_package(path), path
    if path := _standard_path(file):
        return Origin.STANDARD, path
    if _COMPILED.search(file):
        return Origin.GENERATED, file
    return Origin.LAUNCHER if _is_command(file) else Origin.USER, file


def _of_no_file(name: str) -> tuple[Origin, str]:
    if name.startswith("<frozen "):
        return Origin.STANDARD, name[len("<frozen ") : -1].replace(".", "/") + ".py"
    return Origin.USER if name.startswith(_TYPED) else Origin.GENERATED, name


def _of_package(path: str) -> Origin:
    if _LAUNCHERS.match(path):
        return Origin.LAUNCHER
    name = path.partition("/")[0].removesuffix(".py")
    other = Origin.FRAMEWORK if name in _FRAMEWORKS else Origin.LIBRARY
    return {"distdbg": Origin.OURS, "torch": Origin.TORCH}.get(name, other)


def _installed_path(file: str) -> str:
    """The path from its package on, for files that are installed or in a source checkout; empty for all others."""
    if found := _INSTALLED.search(file):
        return found[1]
    first, slash, _ = file.partition("/")
    if first in _PACKAGES and slash:  # shortened by who named it; a user's own folder of that name is rarer
        return file
    found = _CHECKOUT.search(file)
    return file[found.end() :] if found else ""


def _standard_path(file: str) -> str:
    if found := _STANDARD.search(file):
        return found[1] or found[2]
    first, slash, _ = file.partition("/")
    known = first in _STANDARD_PACKAGES if slash else first.removesuffix(".py") in sys.stdlib_module_names
    return file if known else ""


def _is_python_file(file: str) -> bool:
    if file.endswith(_PYTHON_SUFFIXES):
        return True
    name = file.rpartition("/")[2]  # a script may have no suffix; a C frame's file is a library or Python itself
    return file.startswith("/") and "." not in name and not name.startswith("python") and name != ""


def _is_command(file: str) -> bool:
    """An installed command's script: `/opt/conda/bin/torchrun`."""
    folder, _, name = file.rpartition("/")
    return "." not in name and folder.endswith("/bin")


# -- what it is busy with ------------------------------------------------------------------------------------------

_SETUP = (*of_kind(SETUP), "_new_group_with_tag", "_new_process_group_helper", "_store_based_barrier")
#: (begin of the path below sys.path, functions or () for all, activity); the first row that fits decides
_ACTIVITIES: tuple[tuple[str, tuple[str, ...], Activity], ...] = (
    ("torch/autograd/graph.py", ("_engine_run_backward",), Activity.AUTOGRAD),
    ("torch/distributed/distributed_c10d.py", ("_object_to_tensor", "_tensor_to_object"), Activity.PICKLING),
    ("torch/distributed/distributed_c10d.py", _SETUP, Activity.GROUP_SETUP),
    ("torch/distributed/rendezvous.py", (), Activity.GROUP_SETUP),
    ("torch/distributed/distributed_c10d.py", (), Activity.COLLECTIVE),
    ("torch/distributed/", (), Activity.DISTRIBUTED),
    ("torch/nn/parallel/", (), Activity.DATA_PARALLEL),
    ("torch/", ("synchronize",), Activity.DEVICE_WAIT),
    ("torch/optim/", (), Activity.OPTIMIZER),
    ("torch/utils/data/_utils/worker.py", (), Activity.LOADER_WORKER),
    ("torch/utils/data/dataloader.py", (), Activity.LOADER),
    ("torch/utils/data/_utils/pin_memory.py", (), Activity.LOADER),
    ("torchdata/stateful_dataloader/worker.py", (), Activity.LOADER_WORKER),
    ("torchdata/stateful_dataloader/stateful_dataloader.py", (), Activity.LOADER),
    ("torch/utils/cpp_extension.py", ("_write_ninja_file_and_build_library", "_run_ninja_build"),
     Activity.EXTENSION_BUILD),
    ("torch/utils/cpp_extension.py", ("_jit_compile",), Activity.EXTENSION),
    ("torch/utils/file_baton.py", ("wait",), Activity.LOCK_FILE),
    ("filelock/", ("acquire",), Activity.LOCK_FILE),
    ("torch/_dynamo/convert_frame.py", (), Activity.COMPILATION),  # other files are called by compiled code, too
    ("torch/_inductor/compile_fx.py", (), Activity.COMPILATION),
    ("triton/compiler/", (), Activity.COMPILATION),
    ("torch/hub.py", (), Activity.DOWNLOAD),
    ("huggingface_hub/", (), Activity.DOWNLOAD),
    ("urllib/request.py", (), Activity.DOWNLOAD),
    ("http/client.py", (), Activity.DOWNLOAD),
    ("importlib/_bootstrap.py", (), Activity.IMPORT),
    ("threading.py", ("_shutdown",), Activity.SHUTDOWN),
    ("threading.py", ("_bootstrap", "_bootstrap_inner", "run"), Activity.THREAD_START),
    ("threading.py", (), Activity.LOCK),
    ("queue.py", (), Activity.LOCK),
    ("concurrent/futures/process.py", ("_process_worker",), Activity.CHILD_START),
    ("concurrent/futures/process.py", (), Activity.CHILD),
    ("concurrent/futures/", (), Activity.LOCK),
    ("multiprocessing/synchronize.py", (), Activity.SHARED_LOCK),
    ("multiprocessing/queues.py", (), Activity.SHARED_LOCK),
    ("multiprocessing/process.py", ("_bootstrap", "run"), Activity.CHILD_START),
    ("multiprocessing/", (), Activity.CHILD),
    ("subprocess.py", (), Activity.SUBPROCESS),
    ("selectors.py", (), Activity.SELECT),
    ("asyncio/", (), Activity.EVENT_LOOP),
    ("logging/", (), Activity.LOGGING),
)  # fmt: skip


@lru_cache(maxsize=16384)
def activity_of(file: str, function: str) -> Activity:
    """What torch's or the standard library's code is busy with; OTHER for all other code.

    `function` may be qualified, as py-spy has it from Python 3.11 on: `Thread._bootstrap`.
    """
    origin, path = _locate(file)
    if origin in (Origin.TORCH, Origin.LAUNCHER, Origin.STANDARD, Origin.LIBRARY):
        return _row_of(_ACTIVITIES, path, function) or Activity.OTHER
    return Activity.OTHER


#: The parts of a step.
FORWARD, BACKWARD, OPTIMIZER, INIT, DATA = "forward", "backward", "optimizer", "init", "data"
#: As _ACTIVITIES; a row without a path fits all files.
_PHASES: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("torch/utils/data/", (), DATA),
    ("torch/optim/", (), OPTIMIZER),
    ("torch/utils/checkpoint.py", ("recompute_fn",), BACKWARD),
    ("torch/distributed/fsdp/", ("_pre_backward", "_post_backward", "_root_post_backward_final_callback"), BACKWARD),
    ("torch/distributed/fsdp/", ("pre_backward", "post_backward"), BACKWARD),
    ("torch/distributed/fsdp/", ("_pre_forward", "_root_pre_forward", "_post_forward"), FORWARD),
    ("torch/nn/modules/module.py", ("_apply", "to", "cuda"), INIT),
    ("", ("backward",), BACKWARD),
    ("", ("_call_impl", "_wrapped_call_impl", "forward"), FORWARD),
    ("", ("__init__",), INIT),
)
_ALLOCATIONS: tuple[tuple[str, tuple[str, ...], AllocatedFor], ...] = (
    ("torch/distributed/", ("alloc_storage", "_alloc_storage", "init_all_gather_outputs", "alloc_all_gather_outputs"),
     AllocatedFor.PARAMETERS),
    ("torch/nn/parallel/comm.py", ("broadcast_coalesced",), AllocatedFor.REPLICAS),
    ("torch/nn/parallel/distributed.py", ("_ddp_init_helper", "_pre_forward", "forward"), AllocatedFor.BUCKETS),
    ("torch/nn/parallel/comm.py", ("scatter",), AllocatedFor.BATCH),
    ("torch/distributed/utils.py", ("to_map",), AllocatedFor.BATCH),
    ("accelerate/utils/operations.py", ("send_to_device",), AllocatedFor.BATCH_OF_FRAMEWORK),
    ("transformers/trainer.py", ("_prepare_input",), AllocatedFor.BATCH_OF_FRAMEWORK),
    ("lightning/fabric/utilities/apply_func.py", ("batch_to",), AllocatedFor.BATCH_OF_FRAMEWORK),
    ("lightning_fabric/utilities/apply_func.py", ("batch_to",), AllocatedFor.BATCH_OF_FRAMEWORK),
)  # fmt: skip
#: The function that begins a rank's process, and the variable in which it has the rank's number.
_RANK_VARIABLES = (("torch/multiprocessing/spawn.py", ("_wrap",), "i"),)
_TORCH_CALLS: tuple[tuple[str, tuple[str, ...], TorchCall], ...] = (
    ("torch/_tensor_str.py", ("_str",), TorchCall.PRINT),
    ("torch/nn/parallel/distributed.py", ("_sync_buffers",), TorchCall.BUFFERS),
    ("torch/nn/parallel/data_parallel.py", ("forward",), TorchCall.DATA_PARALLEL),
    ("torch/utils/data/dataloader.py", ("_get_iterator", "_shutdown_workers"), TorchCall.WORKERS),
)


@lru_cache(maxsize=16384)
def phase_of(file: str, function: str) -> str:
    """FORWARD, BACKWARD, OPTIMIZER, INIT or DATA; empty for a frame that each of them may have.

    A `step` in a file that is named after optimizers (`my_optim.py`) is an optimizer's.
    """
    path = module_path(file)
    if (phase := _row_of(_PHASES, path, function)) is not None:
        return phase
    steps = function.rpartition(".")[2] == "step" and "optim" in path.rpartition("/")[2].lower()
    return OPTIMIZER if steps else ""


@lru_cache(maxsize=16384)
def allocated_for(file: str, function: str) -> AllocatedFor | None:
    """None for a frame that allocates on behalf of its caller."""
    return _row_of(_ALLOCATIONS, module_path(file), function)


def rank_variable_of(file: str, function: str) -> str | None:
    """The variable of this function that holds the number of the rank which it begins."""
    return _row_of(_RANK_VARIABLES, module_path(file), function)


@lru_cache(maxsize=16384)
def torch_call_of(file: str, function: str) -> TorchCall | None:
    return _row_of(_TORCH_CALLS, module_path(file), function)


def _row_of(table: Iterable[tuple[str, tuple[str, ...], _Meaning]], path: str, function: str) -> _Meaning | None:
    name = function.rpartition(".")[2]
    return next((row for begin, names, row in table if path.startswith(begin) and (not names or name in names)), None)
