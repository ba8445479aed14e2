"""Recognise wrapped models by the names of their classes, and remember the model that a rank trains."""

from __future__ import annotations

from distdbg.protocol.names import MODEL_WRAPPERS, MODULE_WRAPPERS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

_MOST_NAMES = 20
#: What wrappers put before the names of parameters, and into them.
_MODEL_PREFIXES = tuple(f"{attribute}." for attribute in MODEL_WRAPPERS)
_MODULE_PREFIXES = tuple(f"{attribute}." for attribute in MODULE_WRAPPERS)


class LastModel:
    """The DDP or FSDP module that ran its forward last; it is not kept alive."""

    def __init__(self) -> None:
        self._last: Callable[[], Any] = lambda: None

    def seen(self, module: object) -> None:
        """`module` begins its forward. Never raises."""
        if self._last() is not module:
            self._last = weak_or_gone(module)

    def newest(self) -> Any:
        return self._last()

    def without_gradient(self) -> dict[str, object]:
        """Names of parameters that require a gradient and have none now, how many of how many, and whether DDP was to
        reduce gradients in the last backward: its forward notes that, and no_sync() leaves it out."""
        model = self._last()
        if model is None:
            return {"because": "no DDP or FSDP module was seen"}
        wanted = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        missing = [name for name, p in wanted if p.grad is None]
        return {"model": type(model).__name__, "parameters": len(wanted), "without": len(missing),
                "names": missing[:_MOST_NAMES],
                "reduces": getattr(model, "require_forward_param_sync", None)}  # fmt: skip


def is_ddp(model: object) -> bool:
    return _is_a(model, "DistributedDataParallel")


def is_replicated(model: object) -> bool:
    """DDP, or DataParallel within one process: both keep the model in an attribute `module`."""
    return is_ddp(model) or _is_a(model, "DataParallel")


def is_fsdp1(model: object) -> bool:
    """It replaces the model's parameters with flat ones, and some of them may be empty on a rank."""
    return _is_a(model, "FullyShardedDataParallel")


def is_fsdp2(model: object) -> bool:
    return callable(getattr(model, "_get_fsdp_state", None))


def _is_a(model: object, name: str) -> bool:
    return any(cls.__name__ == name for cls in type(model).__mro__)


def is_compiled(module: Any) -> bool:
    """As a whole: by torch.compile, by its own `compile()`, or as a script."""
    known = type(module).__name__ in ("OptimizedModule", "RecursiveScriptModule", "ScriptModule")
    return known or getattr(module, "_compiled_call_impl", None) is not None


def inner_of(model: Any) -> Any:
    """The module that DDP wraps; any other model itself."""
    return model.module if is_ddp(model) else model


def parameters_of(optimizer: Any) -> Iterator[Any]:
    return (parameter for group in optimizer.param_groups for parameter in group["params"])


def sampler_of(iterator: Any) -> Any:
    """The sampler, which all iterators of a DataLoader share; None for an iterator of another kind."""
    return getattr(iterator, "_index_sampler", None)


def local_part(tensor: Any) -> Any:
    """This rank's part of a DTensor, any other tensor itself, without its graph: the whole would need a collective."""
    return getattr(tensor, "_local_tensor", tensor).detach()


def is_measured(parameter: Any) -> bool:
    """Whether it is trained, and has numbers on this rank."""
    part = getattr(parameter, "_local_tensor", parameter)
    return bool(parameter.requires_grad and part.is_floating_point() and not part.is_sparse and part.numel())


def plain_name(name: str) -> str:
    """The name of a parameter or module without the parts that wrappers of its modules add."""
    for prefix in _MODULE_PREFIXES:
        name = name.replace(prefix, "")
    return name


def remove_model_prefix(name: str) -> str:
    """The name of a parameter without what DDP and torch.compile put before it."""
    while name.startswith(_MODEL_PREFIXES):
        name = name.partition(".")[2]
    return name


def weak(thing: object) -> Callable[[], Any] | None:
    """A weak reference; None for an object that has none, so that it is not kept alive and not remembered."""
    from _weakref import ref

    try:
        return None if thing is None else ref(thing)
    except TypeError:
        return None


def weak_or_gone(thing: object) -> Callable[[], Any]:
    """A weak reference, or a function that returns None."""
    return weak(thing) or (lambda: None)
