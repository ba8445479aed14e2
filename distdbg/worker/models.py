"""The model that a rank trains, as the bus has seen it: asked only once something is wrong."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from distdbg.worker.bus import Bus

#: Of a long list of names so many are told.
_MOST_NAMES = 20


class LastModel:
    """Remembers the DDP or FSDP module whose forward was heard last, without keeping it alive."""

    def __init__(self, bus: Bus) -> None:
        self._last: Callable[[], Any] = lambda: None
        bus.subscribe("forward", self._seen)

    def _seen(self, module: object) -> None:
        if self._last() is not module:
            from _weakref import ref

            self._last = ref(module)

    def newest(self) -> Any:  # noqa: ANN401
        return self._last()

    def without_gradient(self) -> dict[str, object]:
        """Names of parameters that want a gradient and have none now, how many of how many, and whether DDP was to
        reduce gradients in the last backward: its forward notes that, and no_sync() leaves it out."""
        model = self._last()
        if model is None:
            return {"because": "no DDP or FSDP module was seen"}
        wanted = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        missing = [name for name, p in wanted if p.grad is None]
        return {"model": type(model).__name__, "parameters": len(wanted), "without": len(missing),
                "names": missing[:_MOST_NAMES],
                "reduces": getattr(model, "require_forward_param_sync", None)}  # fmt: skip
