"""Where torch is listened to, one function a place; each is looked for by what it is, not by torch's version.

Each gets the module that it is about, just imported, and `channel(event)`, which gives the function to call with the
event's subject. What a torch does not have is left out, and its events do not come. No module hook and no mode: those
cost a third of a forward and break `torch.compile(fullgraph=True)`.

A step calls each of these a few times with cold caches, where every Python call costs about a microsecond: between
torch and a subscriber stand two.
"""

from __future__ import annotations

import _thread
import os

from distdbg.worker.listening import Attribute, Builtin, Called, Method, Written, next_of
from distdbg.worker.traced import asked, method, unless_traced

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any

    Told = Callable[[Any], None]
    Channel = Callable[[str], Told]
    Place = Callable[[Any, Channel], None]


def optimizer_begins(module: Any, channel: Channel) -> None:  # noqa: ANN401
    """All optimizers' own hooks: torch calls them before and after `step`, not around it."""
    module.register_optimizer_step_pre_hook(unless_traced(channel("optimizer")))


def optimizer_stepped(module: Any, channel: Channel) -> None:  # noqa: ANN401
    module.register_optimizer_step_post_hook(unless_traced(channel("step")))


def loaders(module: Any, channel: Channel) -> None:  # noqa: ANN401
    _next(module._BaseDataLoaderIter, channel)


def stateful_loaders(module: Any, channel: Channel) -> None:  # noqa: ANN401
    """torchdata's, where it has a `__next__` of its own, which does not call torch's: that one is heard already."""
    for cls in list(vars(module).values()):
        if isinstance(cls, type) and cls.__name__.endswith("DataLoaderIter") and cls.__module__ == module.__name__:
            own = vars(cls).get("__next__")
            if own is not None and "__next__" not in own.__code__.co_names:
                _next(cls, channel)


def _next(cls: Any, channel: Channel) -> None:  # noqa: ANN401
    """An iterator that has given all that its sampler has is about to end: it does not load, though it is asked."""
    if "__next__" not in vars(cls):
        return
    data, data_end, begins = channel("data"), channel("data-end"), channel("pass")

    def wanted(iterator: Any) -> bool:  # noqa: ANN401
        attributes = iterator.__dict__
        batches = attributes.get("_distdbg_batches")
        if batches is None:
            batches = attributes["_distdbg_batches"] = _batches_of(iterator)
        given = attributes.get("_num_yielded")
        if given == batches:
            data_end(iterator)
        elif given == 0:
            begins(iterator)
            data(iterator)
            return True
        else:
            data(iterator)
        return False

    cls.__next__ = next_of(cls.__next__, wanted, channel("batch"), channel("pass-begins"))


def _batches_of(iterator: Any) -> int:  # noqa: ANN401
    """-1 where it is not known: with an IterableDataset, or a sampler without a length."""
    try:
        if iterator._dataset_kind == 0:  # _DatasetKind.Map
            return len(iterator._index_sampler)
    except Exception:
        return -1
    return -1


def backward(module: Any, channel: Channel) -> None:  # noqa: ANN401
    """The engine's own door, behind `Tensor.backward`, `autograd.backward` and `autograd.grad`.

    Nothing tells the end: whatever is heard next does.
    """
    door = Called(module._engine_run_backward, channel("backward"))
    module._engine_run_backward = module.graph._engine_run_backward = door


def roots_of(caller: FrameType) -> tuple[Any, ...]:
    """What a backward begins from, given its event's subject. Builds a dict of the frame's variables: about 1 us."""
    variables = caller.f_locals
    found = variables.get("tensors", variables.get("outputs", ()))
    return found if isinstance(found, tuple) else (found,)


def ddp_forward(module: Any, channel: Channel) -> None:  # noqa: ANN401
    _method(module.DistributedDataParallel, "_pre_forward", unless_traced(channel("forward")))


def ddp_forward_end(module: Any, channel: Channel) -> None:  # noqa: ANN401
    _method(module.DistributedDataParallel, "_post_forward", unless_traced(channel("forward-end")))


def fsdp2(module: Any, channel: Channel) -> None:  # noqa: ANN401
    """`fully_shard` makes a state for each of its units; the outermost one prepares the root. Never traced."""
    deliver = channel("forward")

    def told(state: Any) -> None:  # noqa: ANN401
        if state._state_ctx.iter_forward_root is None:
            deliver(next(iter(getattr(state, "_modules", ())), None))

    _method(module.FSDPState, "_root_pre_forward", told)


def fsdp2_end(module: Any, channel: Channel) -> None:  # noqa: ANN401
    """Each unit's `_post_forward` prepares the backward of what it gives."""
    deliver = channel("forward-end")

    def told(state: Any) -> None:  # noqa: ANN401
        if state._state_ctx.iter_forward_root is state:
            deliver(next(iter(getattr(state, "_modules", ())), None))

    _method(module.FSDPState, "_register_pre_backward_hook", told)


def fsdp1_end(module: Any, channel: Channel) -> None:  # noqa: ANN401
    deliver = channel("forward-end")

    def told(caller: FrameType) -> None:
        model = caller.f_locals.get("self")
        if getattr(model, "_is_root", None) is not False:
            deliver(model)

    module._post_forward = Called(module._post_forward, told)


def fsdp1(module: Any, channel: Channel) -> None:  # noqa: ANN401
    deliver = channel("forward")

    def told(caller: FrameType) -> None:
        model = caller.f_locals.get("self")
        if getattr(model, "_is_root", None) is not False:  # None until the first forward
            deliver(model)

    module._root_pre_forward = Called(module._root_pre_forward, told)


def schedulers(module: Any, channel: Channel) -> None:  # noqa: ANN401
    """`__init__` is called by subclasses, from the instance or from the class."""
    module.LRScheduler.__init__ = Method(module.LRScheduler.__init__, channel("scheduler"))


def scalers(module: Any, channel: Channel) -> None:  # noqa: ANN401
    module.GradScaler.__init__ = Method(module.GradScaler.__init__, channel("scaler"))


def autocasts(module: Any, channel: Channel) -> None:  # noqa: ANN401
    """A region that is entered notes what was in force before, and then sets its own."""
    name = "prev_fastdtype"
    if name in module.autocast.__enter__.__code__.co_names:
        setattr(module.autocast, name, Written(name, channel("autocast")))


def clipping(module: Any, channel: Channel) -> None:  # noqa: ANN401
    """What clips gradients asks a little function first, which never fails: ours stands in its place, not around it.

    torch.compile sees through it, and a clip that is compiled is not heard.
    """
    by, told = ("_clip_grads_with_norm_", "clip_grad_value_"), channel("clip")
    for name in ("_has_foreach_support", "_device_has_foreach_support"):
        if hasattr(module, name):
            setattr(module, name, asked(getattr(module, name), by, told))


def save(module: Any, channel: Channel) -> None:  # noqa: ANN401
    """torch.save opens one of two writers; `with` takes `__enter__` from it."""
    told = _with_path(channel("save"))
    for cls in (module._open_zipfile_writer_file, module._open_zipfile_writer_buffer):
        _method(cls, "__enter__", told)


def save_end(module: Any, channel: Channel) -> None:  # noqa: ANN401
    """The last thing that each writer does is to look at its file."""
    told = _with_path(channel("save-end"))
    writers = (module._open_zipfile_writer_file, "file_stream"), (module._open_zipfile_writer_buffer, "buffer")
    for cls, last in writers:
        if last in cls.__exit__.__code__.co_names:
            setattr(cls, last, Attribute(last, told))


def _with_path(deliver: Told) -> Told:
    """The writer to a buffer has no name."""
    return lambda writer: deliver(getattr(writer, "name", None))


def tensor_files(module: Any, channel: Channel) -> None:  # noqa: ANN401
    """safetensors, and with it save_pretrained."""
    module.serialize_file = Called(module.serialize_file, _local("filename", "save_file", channel("write")))


def array_files(module: Any, channel: Channel) -> None:  # noqa: ANN401
    """np.save opens its file by itself, np.savez has it done."""
    told = channel("write")
    if hasattr(module, "zipfile_factory"):  # of numpy's two modules of that name one only passes names on
        module.open = Builtin("open", _local("file", "save", told))
        module.zipfile_factory = Called(module.zipfile_factory, _local("file", "_savez", told))


def _local(name: str, function: str, deliver: Told) -> Told:
    """Tells of a variable of the function that calls."""

    def told(frame: FrameType) -> None:
        if frame.f_code.co_name == function:
            deliver(frame.f_locals.get(name))

    return told


def sharded_files(module: Any, channel: Channel) -> None:  # noqa: ANN401
    """torch.distributed.checkpoint where a rank saves for itself alone: else each writes files of its own."""
    deliver, main = channel("write"), _thread.get_ident()

    def told(frame: FrameType) -> None:
        given = frame.f_locals
        group = given.get("process_group")
        if _thread.get_ident() == main and (given.get("no_dist") or (group is not None and group.size() == 1)):
            deliver(getattr(given.get("storage_writer"), "path", None))

    module._save_state_dict = Called(module._save_state_dict, told)


def state_dicts(module: Any, channel: Channel) -> None:  # noqa: ANN401
    """torch.distributed.checkpoint's get_model_state_dict and its like look at their options first."""
    module._verify_options = Called(module._verify_options, channel("state-dict"))


def fsdp1_state_dicts(module: Any, channel: Channel) -> None:  # noqa: ANN401
    hook = "_common_unshard_pre_state_dict_hook"
    setattr(module, hook, Called(getattr(module, hook), channel("state-dict")))


def process_groups(module: Any, channel: Channel) -> None:  # noqa: ANN401
    """`init_process_group` ends with writing the default group down."""
    cls = type(module._world)
    plain, deliver = vars(cls)["default_pg"], channel("init")

    def write(world: object, group: object) -> None:
        plain.fset(world, group)
        if group is not None:
            deliver(group)

    cls.default_pg = property(plain.fget, write, plain.fdel, plain.__doc__)


def groups(module: Any, channel: Channel) -> None:  # noqa: ANN401
    """torch keeps the members of each group in one dict, and writes them down once the group stands."""
    deliver = channel("group")

    class Groups(dict):  # type: ignore[type-arg]
        def __setitem__(self, group: object, ranks: object) -> None:
            super().__setitem__(group, ranks)
            deliver((group, ranks))

    module._pg_group_ranks = Groups(module._pg_group_ranks)


def groups_begin(module: Any, channel: Channel) -> None:  # noqa: ANN401
    """Whoever makes a process group calls this one, before it waits for the others."""
    told = channel("group-begins")
    module._new_process_group_helper = Called(module._new_process_group_helper, told)


def timeout_of(caller: FrameType) -> float | None:
    """The timeout of a group that is about to be made in seconds, given its event's subject; None where it is unset."""
    seconds = getattr(caller.f_locals.get("timeout"), "total_seconds", None)
    return None if seconds is None else float(seconds())


def calls(module: Any, channel: Channel) -> None:  # noqa: ANN401
    """What every function that communicates asks first; `get_rank` and its like ask it, too.

    A flag of this kind in the module's own globals survives `from torch.distributed import all_reduce`.
    """
    told, own = channel("call"), vars(module)

    def asked(frame: FrameType) -> None:
        if frame.f_globals is own and not frame.f_code.co_name.startswith(("get_", "_")):
            told(frame)

    module._rank_not_in_group = Called(module._rank_not_in_group, asked)


def profilers(module: Any, channel: Channel) -> None:  # noqa: ANN401
    """Both doors of torch's profiler: one that has a schedule prepares steps before it begins."""
    told = channel("profiler")
    for name in ("_prepare_profiler", "_enable_profiler"):
        setattr(module, name, Called(getattr(module, name), told))


def _method(cls: Any, name: str, told: Told) -> None:  # noqa: ANN401
    setattr(cls, name, method(getattr(cls, name), told))


_LOADERS: tuple[tuple[str, Place], ...] = (
    ("torch.utils.data.dataloader", loaders),
    ("torchdata.stateful_dataloader.stateful_dataloader", stateful_loaders),
)
#: event -> the modules that are listened to for it, and how
PLACES: dict[str, tuple[tuple[str, Place], ...]] = {
    "init": (("torch.distributed.distributed_c10d", process_groups),),
    "group-begins": (("torch.distributed.distributed_c10d", groups_begin),),
    "group": (("torch.distributed.distributed_c10d", groups),),
    "call": (("torch.distributed.distributed_c10d", calls),),
    "pass": _LOADERS,
    "pass-begins": _LOADERS,
    "data": _LOADERS,
    "batch": _LOADERS,
    "data-end": _LOADERS,
    "forward": (
        ("torch.nn.parallel.distributed", ddp_forward),
        ("torch.distributed.fsdp._fully_shard._fsdp_state", fsdp2),
        ("torch.distributed.fsdp.fully_sharded_data_parallel", fsdp1),
    ),
    "forward-end": (
        ("torch.nn.parallel.distributed", ddp_forward_end),
        ("torch.distributed.fsdp._fully_shard._fsdp_state", fsdp2_end),
        ("torch.distributed.fsdp.fully_sharded_data_parallel", fsdp1_end),
    ),
    "backward": (("torch.autograd", backward),),
    "optimizer": (("torch.optim.optimizer", optimizer_begins),),
    "step": (("torch.optim.optimizer", optimizer_stepped),),
    "scheduler": (("torch.optim.lr_scheduler", schedulers),),
    "state-dict": (
        ("torch.distributed.checkpoint.state_dict", state_dicts),
        ("torch.distributed.fsdp._state_dict_utils", fsdp1_state_dicts),
    ),
    "scaler": (("torch.amp.grad_scaler", scalers),),
    "autocast": (("torch.amp.autocast_mode", autocasts),),
    "clip": (("torch.nn.utils.clip_grad", clipping),),
    "save": (("torch.serialization", save),),
    "save-end": (("torch.serialization", save_end),),
    "write": (
        ("safetensors.torch", tensor_files),
        ("safetensors.numpy", tensor_files),
        ("numpy.lib._npyio_impl", array_files),
        ("numpy.lib.npyio", array_files),
        ("torch.distributed.checkpoint.state_dict_saver", sharded_files),
    ),
    "profiler": (("torch.autograd.profiler", profilers),),
}


#: What torch.compile meets in what it traces, and sees through: traced*.py, and what stands there by the user's wish.
_TRACED = ("traced", "shrunk/")


def hide_from_compiler(trace_rules: Any) -> None:  # noqa: ANN401
    """Once torch.compile is loaded, as every optimizer loads it: it leaves our code alone, but for traced*.py.

    Else it would compile us as if we were the script's, wherever we run below a function that is compiled in parts.
    By the list of single files: `trace_rules.add` compiles torch's pattern of folders anew each time, for 7 ms.
    Raises AttributeError where this torch has no such list.
    """
    ours = __file__.rpartition("/")[0]
    files = (f"{folder}/{name}" for folder, _, names in os.walk(ours) for name in names if name.endswith(".py"))
    trace_rules.FORCE_SKIP_FILES.update(f for f in files if not f[len(ours) + 1 :].startswith(_TRACED))
