"""distdbg: launch distributed PyTorch jobs and explain what goes wrong with them.

The library side is what scripts want and no more; everything here is harmless outside a run and imports no torch.
"""

from __future__ import annotations

import os
import sys

__version__ = "0.2.0"
__all__ = ["is_rank_zero", "rank", "rank_zero_only", "see_memory_usage", "tick", "watch", "world_size"]

TYPE_CHECKING = False  # typing costs more to import than all of this
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import ParamSpec, TypeVar

    _P = ParamSpec("_P")
    _R = TypeVar("_R")


def rank() -> int:
    """This process's global rank, from RANK; 0 outside a distributed job."""
    return int(os.environ.get("RANK", "0"))


def world_size() -> int:
    """Number of ranks in the job, from WORLD_SIZE; 1 outside a distributed job."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_rank_zero() -> bool:
    return rank() == 0


def rank_zero_only(function: Callable[_P, _R]) -> Callable[_P, _R | None]:
    """Run a function on rank 0 only; other ranks get None. Nothing with a collective in it belongs inside."""

    from functools import wraps

    @wraps(function)
    def on_rank_zero(*args: _P.args, **kwargs: _P.kwargs) -> _R | None:
        return function(*args, **kwargs) if is_rank_zero() else None

    return on_rank_zero


def tick(step: int | None = None) -> None:
    """Say that a step is done, where no optimizer's step shows it. A no-op outside a run; never raises."""
    session = sys.modules.get("distdbg.worker.session")
    current = getattr(session, "current", None)
    if current is not None:
        try:
            current.page.user_step(step)
        except (TypeError, ValueError):  # no number, or one that does not fit into the page
            return


def watch(model: object = None, *, levels: str | Iterable[str] = "numerics,gradients") -> None:
    """Look out for values that are not finite and at each layer's gradients, as `distdbg launch --watch` does, beside
    what the launch watches; see docs/watch.md.

    `model` is a torch.nn.Module; most are found without it. `levels` are words with commas between them, or several
    words; one that there is not gets a warning. A no-op outside a run; never raises.
    """
    current = getattr(sys.modules.get("distdbg.worker.session"), "current", None)
    if current is None:
        return
    try:
        unknown = current.watch(model, levels)
        if unknown:
            from warnings import warn

            warn(f"distdbg.watch: there is no level {', '.join(map(repr, unknown))} to watch", stacklevel=2)
    except Exception:  # what is watched is not worth a training
        return


def see_memory_usage(message: str, force: bool = False) -> None:
    """Print memory figures of the GPU and the host on rank 0, and what changed; `force` collects garbage first."""
    if not is_rank_zero():
        return
    try:
        from distdbg.worker.memory_line import lines

        print(lines(message, collect=force), flush=True)  # noqa: T201 -- it is what it is for
    except Exception:  # a figure is not worth a training
        return
