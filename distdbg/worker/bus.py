"""The hook bus: the one place where torch is listened to, for everybody. Subscribers run in the training thread.

    step       an optimizer has stepped
    data       a batch is wanted            · batch         it has come
    backward   torch.autograd.backward runs · backward-end  it has ended
    save       torch.save runs              · save-end      it has ended

A place is only touched when somebody subscribes to it. Steps and batches are heard without a frame of ours on the
script's stack, so that its tracebacks stay its own; backward and save are wrapped. No module hook, no mode: those cost
a third of a forward and break `torch.compile(fullgraph=True)`. In a traced region every hook is a constant `if`.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    from distdbg.worker.importing import ImportWatch

    Subscriber = Callable[[], None]
    Emit = Callable[[str], None]

EVENTS = ("step", "data", "batch", "backward", "backward-end", "save", "save-end")


class Bus:
    """`dropped(event, subscriber, error)` hears of a subscriber that raised; it is not called again."""

    def __init__(self, imports: ImportWatch, dropped: Callable[[str, str, Exception], None]) -> None:
        self._imports = imports
        self._dropped = dropped
        self._subscribers: dict[str, tuple[Subscriber, ...]] = dict.fromkeys(EVENTS, ())
        self._hooked: set[str] = set()

    def subscribe(self, event: str, subscriber: Subscriber) -> None:
        self._subscribers[event] = (*self._subscribers[event], subscriber)
        place = event.removesuffix("-end").replace("batch", "data")
        if place not in self._hooked:
            self._hooked.add(place)
            module, hook = _PLACES[place]
            self._imports.after(module, lambda _module: hook(sys.modules["torch"], self.emit))

    def clear(self) -> None:
        self._subscribers = dict.fromkeys(EVENTS, ())

    def emit(self, event: str) -> None:
        for subscriber in self._subscribers[event]:
            try:
                subscriber()
            except Exception as error:
                self._subscribers[event] = tuple(s for s in self._subscribers[event] if s is not subscriber)
                self._dropped(event, getattr(subscriber, "__qualname__", "?"), error)


def _hook_step(torch: Any, emit: Emit) -> None:  # noqa: ANN401
    compiling = torch.compiler.is_compiling

    def stepped(_optimizer: object, _args: object, _kwargs: object) -> None:
        if not compiling():
            emit("step")

    # Not torch.optim.optimizer: torch.optim deletes that name of its own submodule.
    sys.modules["torch.optim.optimizer"].register_optimizer_step_post_hook(stepped)


def _hook_data(_torch: Any, emit: Emit) -> None:  # noqa: ANN401
    """Two attributes that every DataLoader iterator reads before, and counts up after, it fetches a batch."""
    iterator = sys.modules["torch.utils.data.dataloader"]._BaseDataLoaderIter

    def wanted(self: Any) -> Any:  # noqa: ANN401
        emit("data")
        return self.__dict__["_profile_name"]

    def counted(self: Any, value: int) -> None:  # noqa: ANN401
        self.__dict__["_num_yielded"] = value
        if value:
            emit("batch")

    def set_name(self: Any, value: str) -> None:  # noqa: ANN401
        self.__dict__["_profile_name"] = value

    if "_num_yielded" in iterator.__init__.__code__.co_names:
        iterator._num_yielded = property(lambda self: self.__dict__["_num_yielded"], counted)
    if "_profile_name" in iterator.__init__.__code__.co_names:
        iterator._profile_name = property(wanted, set_name)


def _hook_backward(torch: Any, emit: Emit) -> None:  # noqa: ANN401
    _wrap(torch, torch.autograd, "backward", emit)


def _hook_save(torch: Any, emit: Emit) -> None:  # noqa: ANN401
    _wrap(torch, torch.serialization, "save", emit)
    torch.save = torch.serialization.save


def _wrap(torch: Any, owner: ModuleType, name: str, emit: Emit) -> None:  # noqa: ANN401
    original, compiling, end = getattr(owner, name), torch.compiler.is_compiling, f"{name}-end"

    def wrapped(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        if compiling():
            return original(*args, **kwargs)
        emit(name)
        try:
            return original(*args, **kwargs)
        finally:
            emit(end)

    for attribute in ("__name__", "__qualname__", "__module__", "__doc__", "__annotations__"):
        setattr(wrapped, attribute, getattr(original, attribute))
    wrapped.__wrapped__ = original  # type: ignore[attr-defined]
    setattr(owner, name, wrapped)


#: Where to listen for what, and the module that must have been imported before.
_PLACES: dict[str, tuple[str, Callable[[Any, Emit], None]]] = {
    "step": ("torch", _hook_step),
    "data": ("torch.utils.data.dataloader", _hook_data),
    "backward": ("torch", _hook_backward),
    "save": ("torch", _hook_save),
}
