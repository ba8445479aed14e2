"""A warm-up that is as long as the run, or longer: the learning rate never gets where it should."""

from __future__ import annotations

from collections.abc import Iterator

from distdbg.lint._constants import number
from distdbg.lint._rule import Context, Hit
from distdbg.lint._script import argument
from distdbg.model import FindingDoc

DOCS = (
    FindingDoc(
        id="warmup-too-long",
        severity="warning",
        title="the warm-up is longer than the run",
        meaning="The learning rate rises for as many steps as the warm-up has. If the run has no more than these, it "
        "ends before the learning rate has reached its value, and nothing says so.",
        how_seen="A schedule with warm-up is given two numbers that the file writes down, and the warm-up's is not "
        "smaller than the run's.",
        remedy="Give the warm-up a few percent of the steps that the run will really make.",
        source="https://huggingface.co/docs/transformers/main_classes/optimizer_schedules",
    ),
)
#: name of the call -> places of (steps of the warm-up, steps of the run)
_SCHEDULES = {
    "get_linear_schedule_with_warmup": (1, 2),
    "get_cosine_schedule_with_warmup": (1, 2),
    "get_cosine_with_hard_restarts_schedule_with_warmup": (1, 2),
    "get_polynomial_decay_schedule_with_warmup": (1, 2),
    "get_scheduler": (2, 3),
}


def check(context: Context) -> Iterator[Hit]:
    for call in context.script.calls(*_SCHEDULES):
        places = _SCHEDULES[context.script.call_names[call].rpartition(".")[2]]
        warmup = number(context, argument(call, places[0], "num_warmup_steps"))
        steps = number(context, argument(call, places[1], "num_training_steps"))
        if warmup is not None and steps is not None and 0 < steps <= warmup:
            yield Hit(
                "warmup-too-long",
                "warning",
                "certain",
                call,
                f"the warm-up takes {warmup:g} steps and the run has {steps:g}: it never ends",
            )
