"""Read the length of a schedule's warm-up from the schedule itself."""

from __future__ import annotations

from typing import Any

#: The names of the two numbers in transformers, and in copies of its schedules.
_WARMUP, _TOTAL = "num_warmup_steps", "num_training_steps"


class Warmup:
    """`moves` of the schedule, of `planned` ones in all (0 where it does not say), after which the rate is `peak`."""

    def __init__(self, moves: float, planned: int, peak: float) -> None:
        self.moves, self.planned, self.peak = moves, planned, peak


def warmup_of(scheduler: Any) -> Warmup | None:
    """None for a schedule without one, for other kinds, and for a rate in a tensor, which may be on a device."""
    found = _read(scheduler)
    return found if found is not None and isinstance(found.peak, (int, float)) else None


def _read(scheduler: Any) -> Warmup | None:
    kind = type(scheduler).__name__
    if kind == "LinearLR":
        if scheduler.start_factor < scheduler.end_factor:
            return Warmup(scheduler.total_iters, 0, scheduler.base_lrs[0] * scheduler.end_factor)
    elif kind == "OneCycleLR":
        phases = getattr(scheduler, "_schedule_phases", None)
        peak = scheduler.optimizer.param_groups[0].get("max_lr")
        if phases and isinstance(peak, float):
            return Warmup(phases[0]["end_step"], scheduler.total_steps, peak)
    elif kind == "LambdaLR":
        given_numbers = _arguments_of(scheduler.lr_lambdas[0])
        moves, planned = given_numbers.get(_WARMUP), given_numbers.get(_TOTAL)
        if isinstance(moves, int) and moves > 0:
            return Warmup(moves, planned if isinstance(planned, int) else 0, scheduler.base_lrs[0])
    return None


def _arguments_of(function: Any) -> dict[str, Any]:
    """The keyword arguments of a partial, or the variables of a nested function."""
    if isinstance(given := getattr(function, "keywords", None), dict):
        return given
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    cells = getattr(function, "__closure__", None) or ()
    return {name: _value(cell) for name, cell in zip(names, cells, strict=False) if name in (_WARMUP, _TOTAL)}


def _value(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing in it yet
        return None
