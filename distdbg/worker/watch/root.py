"""Call back when the forward of the trained model begins, by a hook on it, and remove hooks while torch.save writes."""

from __future__ import annotations

import _thread
from collections.abc import Callable
from typing import Any

from distdbg.worker.context import RankContext
from distdbg.worker.hooks import traced_outputs
from distdbg.worker.models import inner_of, is_compiled, weak_or_gone

Began = Callable[[Any, Any, Any], None]


class RootWatch:
    """One for a rank. Listeners get (module, args, kwargs), and must not keep them."""

    def __init__(self, context: RankContext) -> None:
        self._context = context
        self._model: Callable[[], Any] = lambda: None
        self._inner: Callable[[], Any] = lambda: None
        self._handle: Any = None
        self._listeners: list[Began] = []
        context.bus.subscribe("forward", self.model)
        self._saves = Saves(context, self._unhook, self._hook)

    def listen(self, listener: Began) -> None:
        self._listeners.append(listener)

    def unsubscribe(self, listener: Began) -> None:
        if listener in self._listeners:
            self._listeners.remove(listener)
        if not self._listeners:
            self.end()

    def model(self, model: Any) -> None:
        """The model that is trained; None where it is not certain any more."""
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
        """A model that is compiled as a whole calls no forward hooks."""
        inner = self._inner()
        if self._listeners and self._handle is None and inner is not None and not is_compiled(inner):
            traced_outputs.began = self._began
            self._handle = inner.register_forward_pre_hook(traced_outputs.begins, with_kwargs=True)

    def _began(self, module: Any, args: Any, kwargs: Any) -> None:
        """A copy of the model has the hook, too, but is not the trained model."""
        if module is not self._inner():
            return
        for listener in list(self._listeners):
            try:
                listener(module, args, kwargs)
            except Exception as error:
                self.unsubscribe(listener)
                self._context.fact("watch-failed", watch=getattr(listener, "__qualname__", "?"), error=repr(error))

    def unhook(self) -> None:
        """Until the next backward, or the next forward event of the bus."""
        self._unhook()
        self._saves.back_later()

    def _unhook(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.remove()
            traced_outputs.began = None


class Saves:
    """Calls `off` before a save and `on` once all is written. Where the end sends no event (the save raised, or
    another thread saves while this one trains) `on` is called at the next backward."""

    def __init__(self, context: RankContext, off: Callable[[], None], on: Callable[[], None]) -> None:
        self._bus, self._off, self._on = context.bus, off, on
        self._depth, self._thread = 0, _thread.get_ident()
        self._unsubscribe = self._bus.subscribe_all(("save", self._begins), ("save-end", self._ends))

    def end(self) -> None:
        self._unsubscribe()
        self._bus.unsubscribe("backward", self._back)

    def back_later(self) -> None:
        """For code that removed the hooks itself: put them back at the next backward."""
        self._bus.unsubscribe("backward", self._back)
        self._bus.subscribe("backward", self._back)

    def _begins(self, _path: object) -> None:
        """Saving an object may save another one."""
        self._depth += 1
        self._off()
        self.back_later()

    def _ends(self, path: object) -> None:
        """In another thread hooks are left alone: the model may be in its forward."""
        self._depth = max(0, self._depth - 1)
        if not self._depth and _thread.get_ident() == self._thread:
            self._back(path)

    def _back(self, _subject: object) -> None:
        self._depth = 0
        self._bus.unsubscribe("backward", self._back)
        self._on()
