"""Detect mixed precision of FSDP that has no effect, or widens, because of the parameters' dtypes.

Mixed precision computes in half precision with parameters that the optimizer keeps in float32. Parameters in half
precision leave nothing to mix.
"""

from __future__ import annotations

from typing import Any

from distdbg.worker.guards.shared.units import Unit, UnitsGuard
from distdbg.worker.user_code import users_line


class FsdpDtypeMismatch(UnitsGuard):
    id = "fsdp-dtype-mismatch"
    modes = ("off", "warn")
    costs = "once, about 1 ms for 1,000 parameters"
    blind = "optimizers that keep float32 copies of their own"

    def judge(self, _module: Any, units: list[Unit]) -> None:
        judged = {_judged(unit) for unit in units if unit.trained}
        only = judged.pop() if len(judged) == 1 else None
        if only is not None:
            does, kept, computed = only
            self.report(users_line(), does=does, kept=kept, computed=computed)


def _judged(unit: Unit) -> tuple[str, str, str] | None:
    """(`nothing` or `widens`, dtype at rest, dtype that is asked for), where it is one of these."""
    asked = getattr(unit.policy, "param_dtype", None)
    if len(unit.trained) != 1 or asked is None:
        return None
    (kept,) = unit.trained
    names = str(kept).removeprefix("torch."), str(asked).removeprefix("torch.")
    if kept.itemsize == 2 and kept == asked and not _asks_more(unit.policy):
        return ("nothing", *names)
    return ("widens", *names) if kept.itemsize < asked.itemsize else None


def _asks_more(policy: Any) -> bool:
    """Whether reductions, buffers or outputs have another dtype: then mixed precision has an effect."""
    others = (getattr(policy, name, None) for name in ("reduce_dtype", "buffer_dtype", "output_dtype"))
    return any(other not in (None, policy.param_dtype) for other in others)
