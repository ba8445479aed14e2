"""Find the losses and gradient norms of a training log that become NaN or infinite, and stay so until its end.

One pattern reads what Trainer, Lightning, torchtitan, Megatron and plain scripts print: a name that ends a word with
`loss` or is a gradient norm, a separator, a value. Healthy jobs print NaN, too. Left out are
- losses of an evaluation: over no sample they are NaN;
- values that are finite again later, as those of a step that a gradient scaler leaves out;
- values with a finite one of another name beside or below: part of a loss that is finite, an earlier run of the log;
- a rank's, if another rank logs finite ones of that name later: the ranks would share what is not finite;
- those of one line only below finite ones: a last batch without samples;
- those that were never finite, if the line neither counts steps nor states it ("loss is nan"): settings, tests.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from distdbg.evidence.logs.process import LoggedProcess
from distdbg.evidence.logs.sources import SourceLine
from distdbg.evidence.run import GuardFact
from distdbg.model import Citation

#: Characters of a line that are read: a line of values is no longer.
_LONGEST = 2000
_NAMED_VALUE = re.compile(
    r"(?<![\w/])(?P<name>(?:[a-z]+ )?[\w/.-]*(?:loss(?:es)?(?![a-z])|gnorm|grad(?:ient)?s?[ _-]?norm)[\w/.-]*)"
    r"['\"`]?(?P<states> is)?\s*[:= ]\s*(?:tensor\()?"
    r"(?P<value>[-+]?(?:nan|inf(?:inity)?|\d[\d.,]*(?:e[-+]?\d+)?))(?![\w.%])",
    re.IGNORECASE,
)
_EVALUATION = "val|valid|validation|eval|evaluation|test|dev"
#: Words of the names of other values: of an evaluation, of the best one so far, of a scaler.
_OTHER = re.compile(rf"(?:^|[\W_])(?:{_EVALUATION}|best|min|lowest|scale)(?:$|[\W_]|loss)", re.IGNORECASE)
#: In front of a name: the line is of an evaluation.
_OF_EVALUATION = re.compile(rf"(?<![\w/.-])(?:{_EVALUATION})(?![\w/.-])", re.IGNORECASE)
_STEP = re.compile(r"\b(?:global_step|step|iter(?:ation)?)\b['\"]?\s*[:=]?\s*(\d{1,12})(?![\d.])", re.IGNORECASE)
#: What counts steps in a line, next to `_STEP`: an epoch, `5/40` of a progress bar.
_COUNTER = re.compile(r"\bepoch\b['\"]?\s*[:=]?\s*\[?\d|\b\d+/\d+\b", re.IGNORECASE)
_WORD = re.compile(r"[a-z]+|\d+")
#: Names of one process that are compared with each other.
_MAX_NAMES = 200


@dataclass(frozen=True)
class LoggedValue:
    """`value` as it is written: `nan`, `-inf`. `line` is the first that has it (1-based), `step` what that line names.
    `position`: the number of values of this name above it. `states`: a sentence, as in "loss is nan"."""

    name: str
    value: str
    line: int
    text: str
    step: int | None
    position: int = 0
    states: bool = False

    @property
    def key(self) -> str:
        return self.name.lower()

    @property
    def words(self) -> frozenset[str]:
        return frozenset(_WORD.findall(self.key))

    @property
    def is_loss(self) -> bool:
        return "loss" in self.key

    @property
    def is_finite(self) -> bool:
        return self.value.lstrip("+-")[0].isdigit()


class LoggedValues:
    """The losses and gradient norms that one process logged in the file `path`. `finite`: the last finite value of
    each name. `tails`: the values below it, of the names that have any."""

    def __init__(self, lines: Iterable[SourceLine], path: str = "") -> None:
        self.path = path
        self.process: LoggedProcess | None = None
        self.finite: dict[str, LoggedValue] = {}
        self.tails: dict[str, list[LoggedValue]] = {}
        for value in _values(lines):
            if value.is_finite:
                self.finite[value.key] = value
                self.tails.pop(value.key, None)
            elif value.key in self.tails or len(self.tails) < _MAX_NAMES:
                self.tails.setdefault(value.key, []).append(value)

    @cached_property
    def lasting(self) -> list[LoggedValue]:
        """The first value of each tail that no healthy job explains, in the order of the lines."""
        found = [tail[0] for tail in self.tails.values() if self._is_of_training(tail) and not self._is_apart(tail)]
        return sorted(found, key=lambda value: value.line)

    def _is_of_training(self, tail: Sequence[LoggedValue]) -> bool:
        first = tail[0]
        counts = first.states or first.step is not None or bool(_COUNTER.search(first.text))
        if not counts and first.key not in self.finite:
            return False
        related = (t for t in self.tails.values() if first.words <= t[0].words or t[0].words <= first.words)
        several = len({value.line for values in related for value in values}) > 1
        return several or not any(value.is_loss == first.is_loss for value in self.finite.values())

    def _is_apart(self, tail: Sequence[LoggedValue]) -> bool:
        """Whether another value of the kind, which is none of its parts, is finite from the tail's first line on. What
        has more words in its name and is logged in one line with it, is a part of it."""
        first, lines = tail[0], {value.line for value in tail}
        if first.is_loss and any(not values[0].is_loss and values[0].line in lines for values in self.tails.values()):
            return False  # neither are the gradients
        return any(
            other.is_loss == first.is_loss
            and other.line >= first.line
            and not (first.words < other.words and other.line in lines)
            for other in self.finite.values()
        )


def _values(lines: Iterable[SourceLine]) -> Iterator[LoggedValue]:
    counts: dict[str, int] = {}
    for line in lines:
        text = line.text[:_LONGEST]
        for found in _NAMED_VALUE.finditer(text):
            name = found["name"].strip()
            if _OTHER.search(name) or ("train" not in name and _OF_EVALUATION.search(text, 0, found.start("name"))):
                continue
            step = _STEP.search(text)
            number = int(step[1]) if step else None
            position = counts[name.lower()] = counts.get(name.lower(), -1) + 1
            yield LoggedValue(name, found["value"], line.number, text, number, position, bool(found["states"]))


def add_facts(logged: Sequence[LoggedValues]) -> None:
    """Give each process of a job its lasting values, without those of a name that is finite later in another's log."""
    last: dict[str, int] = {}
    for value in (value for values in logged for value in values.finite.values()):
        last[value.key] = max(last.get(value.key, -1), value.position)
    for values in logged:
        lasting = [value for value in values.lasting if last.get(value.key, -1) <= value.position]
        if lasting and values.process is not None:
            values.process.guards.append(_as_fact(lasting, values.process.rank, values.path))


def _as_fact(values: Sequence[LoggedValue], rank: int, path: str) -> GuardFact:
    """The first of these values, in the form in which the guard of this name records what it sees in a rank."""
    first = values[0]
    of_line = {one.name: one.value for one in values if one.line == first.line}
    fields = {"made": "logged", "values": of_line, "line": first.line, "lasting": any(one.is_loss for one in values)}
    return GuardFact(rank, "non-finite", fields, step=first.step, citation=Citation(path, first.line, quote=first.text))
