"""A warm-up that is as long as the run, or longer: the learning rate never gets where it should."""

from __future__ import annotations

from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.constants import number
from distdbg.lint.script.script import argument

#: name of the call -> places of (steps of the warm-up, steps of the run)
_SCHEDULES = {
    "get_linear_schedule_with_warmup": (1, 2),
    "get_cosine_schedule_with_warmup": (1, 2),
    "get_cosine_with_hard_restarts_schedule_with_warmup": (1, 2),
    "get_polynomial_decay_schedule_with_warmup": (1, 2),
    "get_scheduler": (2, 3),
}

#: without these words there is nothing to check
NEEDS = (set(_SCHEDULES),)


def check(context: Context) -> Iterator[Hit]:
    for call in context.script.calls(*_SCHEDULES):
        places = _SCHEDULES[context.script.last_names[call]]
        warmup = number(context, argument(call, places[0], "num_warmup_steps"))
        steps = number(context, argument(call, places[1], "num_training_steps"))
        if warmup is not None and steps is not None and 0 < steps <= warmup:
            yield Hit(call, f"the warm-up takes {warmup:g} steps and the run has {steps:g}: it never ends", "certain")
