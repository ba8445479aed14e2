"""List the places in torch that send events to the hook bus, one installer for each.

An installer gets its module, just imported, and `channel(event)`, a list of one function to call with the event's
subject, which the bus replaces: a hook reads it anew each time. It looks for capabilities and not for torch's version:
what a torch does not have is left out, and its events do not occur. No module hook and no mode: those cost a third of a
forward and break `torch.compile(fullgraph=True)`.

A step calls each of these a few times with cold caches, where every Python call costs about a microsecond: between
torch and a subscriber that is alone there is one.
"""

from __future__ import annotations

import _thread
import os

from distdbg.worker.hooks.lookup_hooks import BuiltinHook, CallHook, MethodHook, ReadHook, WriteHook, next_hook
from distdbg.worker.hooks.traced import called_by, method, unless_traced

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any

    Callback = Callable[[Any], None]
    Channel = list[Callback]
    Channels = Callable[[str], Channel]
    Install = Callable[..., None]
    #: a module that is listened to; its installer, and what that gets besides the module and the channel
    HookPoint = tuple[str, Install, tuple[str, ...]]


def loaders(module: Any, channel: Channels) -> None:
    _next(module._BaseDataLoaderIter, channel)


def stateful_loaders(module: Any, channel: Channels) -> None:
    """torchdata's, where its own `__next__` does not call torch's, which has its events already."""
    for cls in list(vars(module).values()):
        if isinstance(cls, type) and cls.__name__.endswith("DataLoaderIter") and cls.__module__ == module.__name__:
            own = vars(cls).get("__next__")
            if own is not None and "__next__" not in own.__code__.co_names:
                _next(cls, channel)


def _next(cls: Any, channel: Channels) -> None:
    """An iterator that has given all batches of its sampler is about to end: it loads nothing, though it is called."""
    if "__next__" not in vars(cls):
        return
    data, data_end, begins = channel("data"), channel("data-end"), channel("pass")

    def is_first(iterator: Any) -> bool:
        batches = getattr(iterator, "_distdbg_batches", None)  # its `__dict__`, once read, would slow torch's own reads
        if batches is None:
            batches = iterator._distdbg_batches = _batches_of(iterator)
        given = getattr(iterator, "_num_yielded", None)
        if given == batches:
            data_end[0](iterator)
            return False
        if given == 0:
            begins[0](iterator)
        data[0](iterator)
        return given == 0

    cls.__next__ = next_hook(cls.__next__, is_first, channel("batch"), channel("pass-begins"))


def _batches_of(iterator: Any) -> int:
    """-1 where it is not known: with an IterableDataset, or a sampler without a length."""
    try:
        if iterator._dataset_kind == 0:  # _DatasetKind.Map
            return len(iterator._index_sampler)
    except Exception:
        return -1
    return -1


def roots_of(caller: FrameType) -> tuple[Any, ...]:
    """The tensors where a backward begins, given its event's subject. Builds a dict of variables: about 1 us."""
    variables = caller.f_locals
    found = variables.get("tensors", variables.get("outputs", ()))
    return found if isinstance(found, tuple) else (found,)


def on_call(module: Any, channel: Channels, event: str, *names: str) -> None:
    """Functions of the module: the event's subject is the frame that calls."""
    for name in names:
        setattr(module, name, CallHook(getattr(module, name), channel(event)))


def on_method(module: Any, channel: Channels, event: str, cls: str, name: str = "__init__") -> None:
    """Subclasses call it, too: from the instance or from the class."""
    owner = getattr(module, cls)
    setattr(owner, name, MethodHook(getattr(owner, name), channel(event)))


def on_ddp(module: Any, channel: Channels, event: str, name: str) -> None:
    _method(module.DistributedDataParallel, name, channel(event))


def on_optimizer(module: Any, channel: Channels, event: str, register: str) -> None:
    """All optimizers' own hooks: torch calls them before and after `step`, not around it."""
    getattr(module, register)(unless_traced(channel(event)))


def on_fsdp1(module: Any, channel: Channels, event: str, name: str) -> None:
    deliver = channel(event)

    def called(caller: FrameType) -> None:
        model = caller.f_locals.get("self")
        if getattr(model, "_is_root", None) is not False:  # None until the first forward
            deliver[0](model)

    setattr(module, name, CallHook(getattr(module, name), [called]))


def on_fsdp2(module: Any, channel: Channels, event: str, name: str) -> None:
    """`fully_shard` makes a state for each of its units; the outermost one prepares the root. Never traced."""
    deliver, ends = channel(event), event == "forward-end"

    def called(state: Any) -> None:
        if state._state_ctx.iter_forward_root is (state if ends else None):
            deliver[0](next(iter(getattr(state, "_modules", ())), None))

    _method(module.FSDPState, name, [called])


def backward(module: Any, channel: Channels) -> None:
    """The function that `Tensor.backward`, `autograd.backward` and `autograd.grad` call. No event marks its end."""
    hook = CallHook(module._engine_run_backward, channel("backward"))
    module._engine_run_backward = module.graph._engine_run_backward = hook


def on_write(module: Any, channel: Channels, event: str, writer: str, name: str) -> None:
    """An attribute that `writer` (`class.method`) writes, and at most the constructor, too.

    An autocast region that is entered notes the dtype before, and then sets its own. A schedule counts its moves.
    """
    cls, _, method = writer.partition(".")
    owner = getattr(module, cls)
    if name in getattr(owner, method).__code__.co_names:
        setattr(owner, name, WriteHook(name, channel(event)))


def clipping(module: Any, channel: Channels) -> None:
    """Functions that clip gradients first call a helper that never fails: ours replaces it.

    torch.compile can trace it, and a compiled clip sends no event.
    """
    by, called = ("_clip_grads_with_norm_", "clip_grad_value_"), channel("clip")
    for name in ("_has_foreach_support", "_device_has_foreach_support"):
        if hasattr(module, name):
            setattr(module, name, called_by(getattr(module, name), by, called))


def save(module: Any, channel: Channels) -> None:
    """torch.save opens one of two writers; `with` takes `__enter__` from it."""
    called = _with_path(channel("save"))
    for cls in (module._open_zipfile_writer_file, module._open_zipfile_writer_buffer):
        _method(cls, "__enter__", called)


def save_end(module: Any, channel: Channels) -> None:
    """Each writer reads this attribute last."""
    called = _with_path(channel("save-end"))
    writers = (module._open_zipfile_writer_file, "file_stream"), (module._open_zipfile_writer_buffer, "buffer")
    for cls, last in writers:
        if last in cls.__exit__.__code__.co_names:
            setattr(cls, last, ReadHook(last, called))


def _with_path(deliver: Channel) -> Channel:
    """The writer to a buffer has no name."""
    return [lambda writer: deliver[0](getattr(writer, "name", None))]


def tensor_files(module: Any, channel: Channels) -> None:
    """safetensors, and with it save_pretrained."""
    module.serialize_file = CallHook(module.serialize_file, _local("filename", "save_file", channel("write")))


def array_files(module: Any, channel: Channels) -> None:
    """np.save opens its file itself, np.savez by a helper."""
    called = channel("write")
    if hasattr(module, "zipfile_factory"):  # of numpy's two modules of that name one only passes names on
        module.open = BuiltinHook("open", _local("file", "save", called))
        module.zipfile_factory = CallHook(module.zipfile_factory, _local("file", "_savez", called))


def _local(name: str, function: str, deliver: Channel) -> Channel:
    """Deliver a variable of the calling function."""

    def called(frame: FrameType) -> None:
        if frame.f_code.co_name == function:
            deliver[0](frame.f_locals.get(name))

    return [called]


def sharded_files(module: Any, channel: Channels) -> None:
    """torch.distributed.checkpoint where a rank saves for itself alone: else each writes files of its own."""
    deliver, main = channel("write"), _thread.get_ident()

    def called(frame: FrameType) -> None:
        given = frame.f_locals
        group = given.get("process_group")
        if _thread.get_ident() == main and (given.get("no_dist") or (group is not None and group.size() == 1)):
            deliver[0](getattr(given.get("storage_writer"), "path", None))

    module._save_state_dict = CallHook(module._save_state_dict, [called])


def process_groups(module: Any, channel: Channels) -> None:
    """`init_process_group` sets the default group at its end."""
    cls = type(module._world)
    plain, deliver = vars(cls)["default_pg"], channel("init")

    def write(world: object, group: object) -> None:
        plain.fset(world, group)
        if group is not None:
            deliver[0](group)

    cls.default_pg = property(plain.fget, write, plain.fdel, plain.__doc__)


def groups(module: Any, channel: Channels) -> None:
    """torch keeps the members of each group in one dict, and notes them once the group is complete."""
    deliver = channel("group")

    class Groups(dict):  # type: ignore[type-arg]
        def __setitem__(self, group: object, ranks: object) -> None:
            super().__setitem__(group, ranks)
            deliver[0]((group, ranks))

    module._pg_group_ranks = Groups(module._pg_group_ranks)


def timeout_of(caller: FrameType) -> float | None:
    """The timeout of a group that is about to be made in seconds, given its event's subject; None where it is unset."""
    seconds = getattr(caller.f_locals.get("timeout"), "total_seconds", None)
    return None if seconds is None else float(seconds())


def calls(module: Any, channel: Channels) -> None:
    """All functions that communicate call it first; `get_rank` and similar functions call it, too.

    A flag of this kind in the module's own globals survives `from torch.distributed import all_reduce`.
    """
    called, own = channel("call"), vars(module)

    def communicates(frame: FrameType) -> None:
        if frame.f_globals is own and not frame.f_code.co_name.startswith(("get_", "_")):
            called[0](frame)

    module._rank_not_in_group = CallHook(module._rank_not_in_group, [communicates])


def _method(cls: Any, name: str, called: Channel) -> None:
    setattr(cls, name, method(getattr(cls, name), called))


_C10D = "torch.distributed.distributed_c10d"
_DDP = "torch.nn.parallel.distributed"
_FSDP1 = "torch.distributed.fsdp.fully_sharded_data_parallel"
_FSDP2 = "torch.distributed.fsdp._fully_shard._fsdp_state"
_OPTIMIZER = "torch.optim.optimizer"
_LOADERS: tuple[HookPoint, ...] = (
    ("torch.utils.data.dataloader", loaders, ()),
    ("torchdata.stateful_dataloader.stateful_dataloader", stateful_loaders, ()),
)
#: event -> the modules that are listened to for it, and how
HOOK_POINTS: dict[str, tuple[HookPoint, ...]] = {
    "init": ((_C10D, process_groups, ()),),
    "group-begins": ((_C10D, on_call, ("group-begins", "_new_process_group_helper")),),
    "group": ((_C10D, groups, ()),),
    "call": ((_C10D, calls, ()),),
    "pass": _LOADERS,
    "pass-begins": _LOADERS,
    "data": _LOADERS,
    "batch": _LOADERS,
    "data-end": _LOADERS,
    "forward": (
        (_DDP, on_ddp, ("forward", "_pre_forward")),
        (_FSDP2, on_fsdp2, ("forward", "_root_pre_forward")),
        (_FSDP1, on_fsdp1, ("forward", "_root_pre_forward")),
    ),
    "forward-end": (
        (_DDP, on_ddp, ("forward-end", "_post_forward")),
        (_FSDP2, on_fsdp2, ("forward-end", "_register_pre_backward_hook")),
        (_FSDP1, on_fsdp1, ("forward-end", "_post_forward")),
    ),
    "backward": (("torch.autograd", backward, ()),),
    "optimizer": ((_OPTIMIZER, on_optimizer, ("optimizer", "register_optimizer_step_pre_hook")),),
    "step": ((_OPTIMIZER, on_optimizer, ("step", "register_optimizer_step_post_hook")),),
    "scheduler": (("torch.optim.lr_scheduler", on_method, ("scheduler", "LRScheduler")),),
    "scheduler-step": (("torch.optim.lr_scheduler", on_write, ("scheduler-step", "LRScheduler.step", "_step_count")),),
    "replay": (("torch.cuda.graphs", on_method, ("replay", "CUDAGraph", "replay")),),
    "state-dict": (
        ("torch.distributed.checkpoint.state_dict", on_call, ("state-dict", "_verify_options")),
        ("torch.distributed.fsdp._state_dict_utils", on_call, ("state-dict", "_common_unshard_pre_state_dict_hook")),
    ),
    "scaler": (("torch.amp.grad_scaler", on_method, ("scaler", "GradScaler")),),
    "autocast": (("torch.amp.autocast_mode", on_write, ("autocast", "autocast.__enter__", "prev_fastdtype")),),
    "clip": (("torch.nn.utils.clip_grad", clipping, ()),),
    "save": (("torch.serialization", save, ()),),
    "save-end": (("torch.serialization", save_end, ()),),
    "write": (
        ("safetensors.torch", tensor_files, ()),
        ("safetensors.numpy", tensor_files, ()),
        ("numpy.lib._npyio_impl", array_files, ()),
        ("numpy.lib.npyio", array_files, ()),
        ("torch.distributed.checkpoint.state_dict_saver", sharded_files, ()),
    ),
    "profiler": (("torch.autograd.profiler", on_call, ("profiler", "_prepare_profiler", "_enable_profiler")),),
}


#: Files that torch.compile can meet in traced code: traced*.py, and those that the user has switched on.
_TRACED = ("hooks/traced", "shrunk/")


def hide_from_compiler(trace_rules: Any) -> None:
    """Once torch.compile is loaded, as every optimizer loads it: it must not compile our code, but for traced*.py.

    Else it would compile our code like the script's, wherever it runs below a function that is compiled in parts.
    By the list of single files: `trace_rules.add` compiles torch's pattern of folders anew each time, for 7 ms.
    Raises AttributeError where this torch has no such list.
    """
    ours = __file__.rsplit("/", 2)[0]  # distdbg/worker
    files = (f"{folder}/{name}" for folder, _, names in os.walk(ours) for name in names if name.endswith(".py"))
    trace_rules.FORCE_SKIP_FILES.update(f for f in files if not f[len(ours) + 1 :].startswith(_TRACED))
