"""What wraps the model that is trained: told by the names of classes, so that torch is not imported for it."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def is_ddp(model: object) -> bool:
    return _is_a(model, "DistributedDataParallel")


def is_replicated(model: object) -> bool:
    """DDP, or DataParallel within one process: both keep the model in an attribute `module`."""
    return is_ddp(model) or _is_a(model, "DataParallel")


def is_fsdp1(model: object) -> bool:
    """It puts flat parameters of its own in place of the model's, and some of them may be empty on a rank."""
    return _is_a(model, "FullyShardedDataParallel")


def is_fsdp2(model: object) -> bool:
    return callable(getattr(model, "_get_fsdp_state", None))


def inner_of(model: Any) -> Any:  # noqa: ANN401
    """What DDP wraps; any other model is its own."""
    return model.module if is_ddp(model) else model


def _is_a(model: object, name: str) -> bool:
    return any(cls.__name__ == name for cls in type(model).__mro__)
