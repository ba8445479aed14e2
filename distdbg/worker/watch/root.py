"""Call back when the forward of the trained model begins, by a hook on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distdbg.worker import traced_outputs
from distdbg.worker.context import RankContext
from distdbg.worker.models import inner_of, is_compiled, weak_or_gone
from distdbg.worker.watch.saves import Saves

Began = Callable[[Any, Any, Any], None]


class RootWatch:
    """One for a rank. Who listens gets (module, args, kwargs), and keeps none of them longer than it has to."""

    def __init__(self, context: RankContext) -> None:
        self._context = context
        self._model: Callable[[], Any] = lambda: None
        self._inner: Callable[[], Any] = lambda: None
        self._handle: Any = None
        self._listeners: list[Began] = []
        context.bus.subscribe("forward", self.model)
        self._saves = Saves(context, self._unhook, self._hook)

    def listen(self, told: Began) -> None:
        self._listeners.append(told)

    def unsubscribe(self, told: Began) -> None:
        if told in self._listeners:
            self._listeners.remove(told)
        if not self._listeners:
            self.end()

    def model(self, model: Any) -> None:  # noqa: ANN401
        """What is trained; None where that is no longer sure."""
        if self._model() is not model:
            self._unhook()
            self._model = weak_or_gone(model)
            self._inner = weak_or_gone(inner_of(model))
        if self._handle is None:
            self._hook()

    def end(self) -> None:
        self._context.bus.unsubscribe("forward", self.model)
        self._saves.end()
        self._unhook()

    def _hook(self) -> None:
        """One that is compiled as a whole has no forward that could be heard."""
        inner = self._inner()
        if self._listeners and self._handle is None and inner is not None and not is_compiled(inner):
            traced_outputs.began = self._began
            self._handle = inner.register_forward_pre_hook(traced_outputs.begins, with_kwargs=True)

    def _began(self, module: Any, args: Any, kwargs: Any) -> None:  # noqa: ANN401
        """A copy of the model has the hook, too, and is not what is trained."""
        if module is not self._inner():
            return
        for told in list(self._listeners):
            try:
                told(module, args, kwargs)
            except Exception as error:
                self.unsubscribe(told)
                self._context.fact("watch-failed", watch=getattr(told, "__qualname__", "?"), error=repr(error))

    def unhook(self) -> None:
        """Until the next backward, or the next forward that the bus tells of."""
        self._unhook()
        self._saves.back_later()

    def _unhook(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.remove()
            traced_outputs.began = None
