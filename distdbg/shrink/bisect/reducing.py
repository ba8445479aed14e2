"""Reduce a failing command to the smallest one that fails the same way: its dimensions, and their order.

Ranks first: what follows is cheaper with fewer of them. Then layers, then the script's own options as they were named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from distdbg.errors import NothingToAnalyse, UsageError
from distdbg.evidence.jsonl import inner
from distdbg.plain_text import first_words
from distdbg.shrink.bisect.command import Command, Varied
from distdbg.shrink.bisect.searching import Axis, Found, smallest
from distdbg.shrink.bisect.symptom import Symptom, other_failure, symptom_of
from distdbg.shrink.bisect.trials import BisectRun, Trials, read_beginning
from distdbg.shrink.checkpoint.layer_names import number_of

#: A run that has not shown it after so many times the first one's seconds, and a start's worth more, does not show it.
_PATIENCE = 3
_START_S = 60.0
#: Bytes of a trial's log that are read.
_MOST_LOG = 64 << 20
CONFIRMATIONS = 2
NODES, RANKS, LAYERS = "--nodes", "--nproc-per-node", "--keep-layers"

Say = Callable[[str], None]


@dataclass(frozen=True)
class BisectRequest:
    """`finding`: the id that must appear, None for the failure that the first run shows. `fixed`: axes that stay.

    `limit_s`: of one run; None for some times what the first one took."""

    finding: str | None = None
    vary: Sequence[Varied] = ()
    fixed: Sequence[str] = ()
    limit_s: float | None = None


@dataclass
class Reduction:
    """What a search has found. `found`: by axis. `left_out`: axis -> why it was not made smaller. `outcomes`: of each
    trial, in words. `confirmed`: how many of the last runs of the smallest command showed it again, None before they
    have ended. `smallest`: of the runs that showed it, the command of the smallest. `save` is called after each run."""

    trials: Trials
    symptom: Symptom
    command: Command
    limit_s: float
    say: Say
    save: Callable[[Reduction], None]
    smallest: Command
    found: dict[str, tuple[Axis, Found]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    outcomes: list[str] = field(default_factory=list)
    confirmed: int | None = None

    def tries(self, command: Command, words: str) -> tuple[bool, BisectRun]:
        trial = self.trials.run(command, self.limit_s)
        shows = self.symptom.shown_by(trial.report, trial.exit_code)
        self.smallest = command if shows else self.smallest
        self.tell(trial, words, "shows it" if shows else _instead(trial))
        return shows, trial

    def tell(self, trial: BisectRun, words: str, outcome: str) -> None:
        self.outcomes.append(outcome)
        self.say(f"{trial.number:03d}  {words}: {outcome}  ({trial.seconds:.1f} s)")
        self.save(self)


def refuse_fixed(command: Command, order: BisectRequest) -> None:
    """Raises UsageError if nothing of the command can be made smaller."""
    own = list(_own_axes(_with_highest(command, order), order))
    if not command.launcher and not own:
        raise UsageError("the command is no launch, and no --vary names an option of it: nothing can be made smaller",
                         "Name one, with its lowest value: --vary --steps=1.")  # fmt: skip


def _with_highest(command: Command, order: BisectRequest) -> Command:
    for vary in order.vary:
        command = command if vary.high is None else command.with_argument(vary.flag, vary.high)
    return command


def reduce_command(
    command: Command, order: BisectRequest, folder: Path, say: Say, save: Callable[[Reduction], None]
) -> Reduction:
    """Search, then run the result twice more; `save` gets what is known after each run.

    Raises NothingToAnalyse where the command as it is does not fail."""
    command = _with_highest(command, order)
    own = list(_own_axes(command, order))
    trials = Trials(folder)
    first = trials.run(command, order.limit_s)
    limit = order.limit_s or _PATIENCE * first.seconds + _START_S
    found = Reduction(trials, _symptom(first, order, trials), command, limit, say, save, command)
    found.tell(first, "as it is", f"shows {found.symptom.words}")
    for axis in _rank_axes(first, order, found):
        _shorten(found, axis, found.command.with_option)
    _layers(found, order)
    for axis in own:
        _shorten(found, axis, found.command.with_argument)
    found.confirmed = sum(found.tries(found.command, "the smallest again")[0] for _ in range(CONFIRMATIONS))
    save(found)
    return found


def _symptom(first: BisectRun, order: BisectRequest, trials: Trials) -> Symptom:
    if first.command.launcher and first.report is None:
        raise UsageError(
            f"the command did not start, exit code {first.exit_code}: {_last_line(trials, first)}",
            f"Mend it first; what it printed is in {trials.log(first.number)}.",
        )
    seen = Symptom(order.finding) if order.finding else symptom_of(first.report, first.exit_code)
    if seen is None or not seen.shown_by(first.report, first.exit_code):
        what = f"the finding {order.finding}" if order.finding else "a failure"
        raise NothingToAnalyse(
            f"the command as it is does not show {what}: exit code {first.exit_code} after {first.seconds:.1f} s",
            f"What it did is in {trials.log(first.number)}; one that fails now and then cannot be bisected.",
        )
    return seen


def _rank_axes(first: BisectRun, order: BisectRequest, found: Reduction) -> Iterator[Axis]:
    """Nodes and ranks, as many as the first run had."""
    topology = inner(inner(first.report or {}, "run"), "topology")
    for name, key in ((NODES, "nodes"), (RANKS, "nproc_per_node")):
        now = topology.get(key)
        if not first.command.launcher:
            found.left_out[name] = "the command is no launch"
        elif "ranks" in order.fixed:
            found.left_out[name] = "it was to stay"
        elif topology.get("one_of_many") or type(now) is not int:
            found.left_out[name] = "this is one node of several: its command alone says not how many ranks there are"
        elif now > 1:
            yield Axis(name, 1, now)


def _own_axes(command: Command, order: BisectRequest) -> Iterator[Axis]:
    for vary in order.vary:
        now = number_of(command.argument(vary.flag) or "")
        if now is None:
            raise UsageError(
                f"--vary {vary.flag}={vary.low}: the command gives {vary.flag} no whole number to begin with",
                f"Write --vary {vary.flag}={vary.low}:HIGH, with a value at which it fails.",
            )
        if now < vary.low:
            raise UsageError(f"--vary {vary.flag}={vary.low}: the command has {now}, which is less",
                             "Give a lower bound below the command's value.")  # fmt: skip
        yield Axis(vary.flag, vary.low, now, vary.step)


def _shorten(found: Reduction, axis: Axis, with_value: Callable[[str, int], Command]) -> None:
    result = smallest(axis, lambda value: found.tries(with_value(axis.name, value), f"{axis.name} {value}")[0])
    found.found[axis.name] = (axis, result)
    if result.value != axis.high:
        found.command = with_value(axis.name, result.value)


def _layers(found: Reduction, order: BisectRequest) -> None:
    """How many layers there are, only a run that leaves some out can tell."""
    if not found.command.launcher or "layers" in order.fixed:
        found.left_out[LAYERS] = "it was to stay" if found.command.launcher else "the command is no launch"
        return
    if found.command.option("--worker-side") == "off" or "--no-python" in found.command.options:
        found.left_out[LAYERS] = "distdbg's code is not in the ranks"
        return
    given = found.command.option(LAYERS)
    shows, trial = found.tries(found.command.with_option(LAYERS, 1), f"{LAYERS} 1")
    if trial.kept is None:
        found.left_out[LAYERS] = "no rank reported a transformers model that was built with fewer layers"
        return
    kept, there = trial.kept
    axis = Axis(LAYERS, 1, number_of(given or "") or there)
    if shows:
        result = Found(1, None)
    else:
        # Where a kind of layer comes late in the stack, 1 keeps more than one: so many did not show it either.
        rest = Axis(LAYERS, min(kept, axis.high), axis.high)

        def tries(value: int) -> bool:
            asked = found.command.with_option(LAYERS, value)
            return value != rest.low and found.tries(asked, f"{LAYERS} {value}")[0]

        result = smallest(rest, tries)
    found.found[LAYERS] = (axis, result)
    if result.value != axis.high:
        found.command = found.command.with_option(LAYERS, result.value)


def _instead(trial: BisectRun) -> str:
    if trial.over_time:
        return "does not show it: it was ended, past its time"
    other = other_failure(trial.report, trial.exit_code)
    return f"does not show it ({other})" if other else "does not show it"


def _last_line(trials: Trials, trial: BisectRun) -> str:
    text = read_beginning(trials.log(trial.number), _MOST_LOG)
    said = next((line for line in text.splitlines() if line.startswith("distdbg: ")), "")
    return first_words(said.removeprefix("distdbg: ") or (text.splitlines() or [""])[-1], 300)
