"""Where torch is listened to, one function a place; each is looked for by what it is, not by torch's version.

Each gets the module that it is about, just imported, and `emit(event, subject)`. What a torch does not have is left
out, and its events do not come. No module hook and no mode: those cost a third of a forward and break
`torch.compile(fullgraph=True)`.
"""

from __future__ import annotations

from distdbg.worker.listening import Attribute, Called, Next
from distdbg.worker.traced import method, teller

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Emit = Callable[[str, object], None]
    Place = Callable[[Any, Emit], None]


def optimizers(module: Any, emit: Emit) -> None:  # noqa: ANN401
    """All optimizers' own hooks: torch calls them before and after `step`, not around it."""
    module.register_optimizer_step_pre_hook(teller(emit, "optimizer"))
    module.register_optimizer_step_post_hook(teller(emit, "step"))


def loaders(module: Any, emit: Emit) -> None:  # noqa: ANN401
    _next(module._BaseDataLoaderIter, emit)


def stateful_loaders(module: Any, emit: Emit) -> None:  # noqa: ANN401
    """torchdata's, where it has a `__next__` of its own."""
    for cls in list(vars(module).values()):
        if isinstance(cls, type) and cls.__name__.endswith("DataLoaderIter") and cls.__module__ == module.__name__:
            _next(cls, emit)


def _next(iterator: Any, emit: Emit) -> None:  # noqa: ANN401
    if "__next__" in vars(iterator):
        iterator.__next__ = Next(
            iterator.__next__,
            lambda it: emit("data", it),
            lambda it: emit("batch", it),
            lambda it: emit("data-end", it),
        )


def backward(module: Any, emit: Emit) -> None:  # noqa: ANN401
    """The engine's own door, behind `Tensor.backward`, `autograd.backward` and `autograd.grad`.

    Nothing tells the end: whatever is heard next does.
    """

    def begins(caller: dict[str, Any]) -> None:
        emit("backward", caller.get("tensors", caller.get("outputs")))

    door = Called(module._engine_run_backward, begins)
    module._engine_run_backward = module.graph._engine_run_backward = door


def ddp(module: Any, emit: Emit) -> None:  # noqa: ANN401
    cls = module.DistributedDataParallel
    _method(cls, "_pre_forward", teller(emit, "forward"))
    _method(cls, "_post_forward", teller(emit, "forward-end"))


def fsdp2(module: Any, emit: Emit) -> None:  # noqa: ANN401
    """`fully_shard` makes a state for each of its units; the outermost one prepares the root. Never traced."""

    def told(state: Any) -> None:  # noqa: ANN401
        if state._state_ctx.iter_forward_root is None:
            emit("forward", next(iter(getattr(state, "_modules", ())), None))

    _method(module.FSDPState, "_root_pre_forward", told)


def fsdp1(module: Any, emit: Emit) -> None:  # noqa: ANN401
    def told(caller: dict[str, Any]) -> None:
        model = caller.get("self")
        if getattr(model, "_is_root", None) is not False:  # None until the first forward
            emit("forward", model)

    module._root_pre_forward = Called(module._root_pre_forward, told)


def save(module: Any, emit: Emit) -> None:  # noqa: ANN401
    """torch.save opens one of two writers; the last thing that each does is to look at its file."""
    for cls, name, last in (
        (module._open_zipfile_writer_file, "name", "file_stream"),
        (module._open_zipfile_writer_buffer, "", "buffer"),
    ):
        _save(cls, name, last, emit)


def _save(cls: Any, name: str, last: str, emit: Emit) -> None:  # noqa: ANN401
    if last in cls.__exit__.__code__.co_names:
        cls.__enter__ = method(cls.__enter__, lambda writer: emit("save", getattr(writer, name, None)))
        setattr(cls, last, Attribute(last, lambda writer: emit("save-end", getattr(writer, name, None))))


def process_groups(module: Any, emit: Emit) -> None:  # noqa: ANN401
    """`init_process_group` ends with writing the default group down."""
    cls = type(module._world)
    plain = vars(cls)["default_pg"]

    def write(world: object, group: object) -> None:
        plain.fset(world, group)
        if group is not None:
            emit("init", group)

    cls.default_pg = property(plain.fget, write, plain.fdel, plain.__doc__)


def _method(cls: Any, name: str, told: Callable[[Any], None]) -> None:  # noqa: ANN401
    setattr(cls, name, method(vars(cls)[name], told))


#: event -> the modules that are listened to for it, and how
PLACES: dict[str, tuple[tuple[str, Place], ...]] = {
    "optimizer": (("torch.optim.optimizer", optimizers),),
    "data": (
        ("torch.utils.data.dataloader", loaders),
        ("torchdata.stateful_dataloader.stateful_dataloader", stateful_loaders),
    ),
    "backward": (("torch.autograd", backward),),
    "forward": (
        ("torch.nn.parallel.distributed", ddp),
        ("torch.distributed.fsdp._fully_shard._fsdp_state", fsdp2),
        ("torch.distributed.fsdp.fully_sharded_data_parallel", fsdp1),
    ),
    "save": (("torch.serialization", save),),
    "init": (("torch.distributed.distributed_c10d", process_groups),),
}
_SAME_PLACE = {"step": "optimizer", "batch": "data", "data-end": "data", "forward-end": "forward", "save-end": "save"}
EVENTS = (*PLACES, *_SAME_PLACE)


def places_of(event: str) -> tuple[tuple[str, Place], ...]:
    return PLACES[_SAME_PLACE.get(event, event)]
