"""Find the losses and gradient norms of a training log that become NaN or infinite, and stay so until its end.

One pattern reads what Trainer, Lightning, torchtitan, Megatron and plain scripts print: a name that ends a word with
`loss` or is a gradient norm, a separator, a value. Losses of an evaluation are left out: one over no sample is NaN in a
healthy job. So are values that are finite again later, as those of a step that a gradient scaler leaves out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from distdbg.evidence.logs.sources import SourceLine
from distdbg.evidence.run import GuardFact
from distdbg.model import Citation

#: Characters of a line that are read: a line of values is no longer.
_LONGEST = 2000
_NAMED_VALUE = re.compile(
    r"(?<![\w/])(?P<name>(?:[a-z]+ )?[\w/.-]*(?:loss|gnorm|grad(?:ient)?s?[ _-]?norm)[\w/.-]*)['\"`]?(?: is)?\s*[:= ]"
    r"\s*(?:tensor\()?(?P<value>[-+]?(?:nan|inf(?:inity)?|\d[\d.,]*(?:e[-+]?\d+)?))(?![\w.])",
    re.IGNORECASE,
)
#: Words of the names of other values: of an evaluation, of the best one so far, of a scaler.
_OTHER = re.compile(
    r"(?:^|[\W_])(?:val|valid|validation|eval|evaluation|test|dev|best|min|lowest|scale)(?:$|[\W_])", re.IGNORECASE
)
_STEP = re.compile(r"\b(?:global_step|step|iter(?:ation)?)\b['\"]?\s*[:=]?\s*(\d{1,12})(?![\d.])", re.IGNORECASE)


@dataclass(frozen=True)
class LoggedValue:
    """`value` as it is written: `nan`, `-inf`. `line` is the first that has it (1-based), `step` what that line names,
    `times` how many lines have it."""

    name: str
    value: str
    line: int
    text: str
    step: int | None
    times: int = 1

    @property
    def is_loss(self) -> bool:
        return "loss" in self.name.lower()


def lasting_non_finite(lines: Iterable[SourceLine]) -> list[LoggedValue]:
    """The first occurrence of each name whose last value is not finite, in the order of the lines."""
    lasting: dict[str, LoggedValue] = {}
    for line in lines:
        for found in _NAMED_VALUE.finditer(line.text[:_LONGEST]):
            name, value = found["name"].strip(), found["value"]
            if _OTHER.search(name):
                continue
            key = name.lower()
            if value.lstrip("+-")[0].isdigit():
                lasting.pop(key, None)
            elif key in lasting:
                lasting[key] = replace(lasting[key], times=lasting[key].times + 1)
            else:
                step = _STEP.search(line.text[:_LONGEST])
                number = int(step[1]) if step else None
                lasting[key] = LoggedValue(name, value, line.number, line.text[:_LONGEST], number)
    return sorted(lasting.values(), key=lambda one: one.line)


def as_fact(values: Sequence[LoggedValue], rank: int, path: str) -> GuardFact:
    """The first of these values, in the form in which the guard of this name records what it sees in a rank."""
    first = values[0]
    of_line = {one.name: one.value for one in values if one.line == first.line}
    fields = {"made": "logged", "values": of_line, "line": first.line, "lasting": any(one.is_loss for one in values)}
    return GuardFact(rank, "non-finite", fields, step=first.step, citation=Citation(path, first.line, quote=first.text))
