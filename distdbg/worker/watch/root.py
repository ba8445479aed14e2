"""Where the forward of the model that is trained begins: heard by a hook on it, for whoever wants its batch."""

from __future__ import annotations

from distdbg.worker import traced_outputs
from distdbg.worker.guards._passes import weak
from distdbg.worker.wrapping import inner_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from distdbg.worker.session import Session

    Began = Callable[[Any, Any, Any], None]


class RootWatch:
    """One for a rank. Who listens gets (module, args, kwargs), and keeps none of them longer than it has to."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._model: Callable[[], Any] = lambda: None
        self._handle: Any = None
        self._listeners: list[Began] = []
        self._events = (("forward", self.model), ("save", self._saves))
        for event, subscriber in self._events:
            session.bus.subscribe(event, subscriber)

    def listen(self, told: Began) -> None:
        self._listeners.append(told)

    def deaf(self, told: Began) -> None:
        if told in self._listeners:
            self._listeners.remove(told)
        if not self._listeners:
            self.end()

    def model(self, model: Any) -> None:  # noqa: ANN401
        """One that is compiled as a whole has no forward that could be heard."""
        if not self._listeners or (self._handle is not None and self._model() is model):
            return
        self.unhook()
        inner, self._model = inner_of(model), weak(model) or (lambda: None)
        compiled = type(inner).__name__ in ("OptimizedModule", "RecursiveScriptModule", "ScriptModule")
        if not compiled and getattr(inner, "_compiled_call_impl", None) is None:
            traced_outputs.began = self._began
            self._handle = inner.register_forward_pre_hook(traced_outputs.begins, with_kwargs=True)

    def end(self) -> None:
        for event, subscriber in self._events:
            self._session.bus.unsubscribe(event, subscriber)
        self.unhook()

    def _began(self, module: Any, args: Any, kwargs: Any) -> None:  # noqa: ANN401
        for told in list(self._listeners):
            try:
                told(module, args, kwargs)
            except Exception as error:
                self.deaf(told)
                self._session.fact("watch-failed", watch=getattr(told, "__qualname__", "?"), error=repr(error))

    def _saves(self, _path: object) -> None:
        """A model that is saved as a whole is saved without us; the next forward brings the hook back."""
        self.unhook()

    def unhook(self) -> None:
        """Until the next forward that the bus tells of."""
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.remove()
            traced_outputs.began = None
