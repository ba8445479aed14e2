"""Define `Guard`, the base class of all guards, and `GuardContext`, which the guards of a rank share."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from distdbg.worker.context import RankContext
from distdbg.worker.guards.shared.atomic_saves import AtomicSaves
from distdbg.worker.models import is_fsdp2
from distdbg.worker.user_code import Where, is_ignored

DEFAULT_MODES = ("off", "warn")
#: Facts that one guard sends in one rank.
MOST_FACTS = 8
#: A mistake of each step is reported once it was made in so many steps in a row, within one window.
IN_A_ROW = 3


class GuardError(BaseException):
    """Ends the script for `--guard ID=error`. It is no Exception: a script's `except Exception` does not catch it."""


class GuardContext:
    """The rank, its hook bus, and the counts of its heartbeat page."""

    def __init__(self, context: RankContext, modes: dict[str, str]) -> None:
        self.rank, self.bus, self.page, self.fact = context.rank, context.bus, context.page, context.fact
        self.model = context.model.newest
        self.modes = modes
        #: files with a temporary name, where a guard's mode is `fix`
        self.saves: AtomicSaves | None = None
        #: the script has ended, so an error could end nothing
        self.ended = False

    def counts(self) -> tuple[int, int, int]:
        """Batches, backwards and steps."""
        return self.page.batches(), self.page.backwards(), self.page.steps()

    def distributed(self) -> bool:
        """Whether this rank has at least one other beside it."""
        dist = sys.modules.get("torch.distributed")
        return dist is not None and dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1

    def replicas(self) -> list[int]:
        """The global ranks that share the gradients of the DDP or FSDP model; empty where they are unknown, or one."""
        model, dist = self.model(), sys.modules.get("torch.distributed")
        if dist is None or model is None or not dist.is_initialized():
            return []
        group = getattr(model, "process_group", None)
        ranks: list[int] = []
        if group is not None:
            ranks = [int(rank) for rank in dist.get_process_group_ranks(group)]
        elif is_fsdp2(model):
            meshes = [own.mesh_info.mesh.mesh for own in parameter_groups(model._get_fsdp_state())]
            all_ranks = [[int(rank) for rank in mesh.flatten().tolist()] for mesh in meshes]
            ranks = all_ranks[0] if all_ranks and all_ranks.count(all_ranks[0]) == len(all_ranks) else []
        return ranks if len(ranks) > 1 else []

    def atomic_saves(self, guard: str) -> AtomicSaves:
        """Made when the first guard asks for it."""
        if self.saves is None:
            self.saves = AtomicSaves(self.rank, lambda error: self.guard_failed(guard, error))
        return self.saves

    def guard_failed(self, guard: str, error: Exception) -> None:
        self.fact("guard-failed", guard=guard, error=repr(error))


def parameter_groups(state: Any) -> list[Any]:
    """The groups of parameters of one of FSDP2's states: newer torch can have several, each on its own mesh."""
    several = getattr(state, "_fsdp_param_groups", None)
    if several is not None:
        return list(several)
    only = getattr(state, "_fsdp_param_group", None)
    return [] if only is None else [only]


class Guard:
    """A subclass describes itself in class attributes, and listens to events in `begin` or `window`.

    `modes` are those that it has; "error" is for guards that one rank can judge alone, "fix" for mistakes that can be
    repaired safely. `costs` and `blind` (what it does not detect) are sentences for `distdbg guards`.
    """

    id = ""
    modes: tuple[str, ...] = DEFAULT_MODES
    default = "warn"
    #: facts that a rank sends
    most = MOST_FACTS
    #: windows that are used; None for all
    most_windows: int | None = None
    costs = ""
    blind = ""

    def __init__(self, context: GuardContext) -> None:
        self.context, self.page = context, context.page
        self.mode = context.modes.get(self.id, self.default)
        #: windows that have opened
        self.windows = 0
        self._reported: set[tuple[object, ...]] = set()
        #: event, subscriber, and whether it ends with the window
        self._subscriptions: list[tuple[str, Callable[[Any], None], bool]] = []
        self._in_a_row: dict[object, int] = {}
        self._judged: set[int] = set()
        self._passes_begun = 0

    def begin(self) -> None:
        """torch has just been imported."""

    def window(self) -> None:
        """A window opens."""

    def window_ends(self) -> None:
        """A window closes."""

    def look(self) -> None:
        """After the steps 11, 22, 44 and so on, then after each thousand."""

    def look_at_loss(self) -> None:
        """At the backwards 1, 2, 4, 8 and so on, then at each thousand: steps may all be left out."""

    def finish(self) -> None:
        """The script has ended."""

    def open_window(self) -> None:
        self.windows += 1
        self._in_a_row.clear()
        self._judged.clear()
        if self.most_windows is None or self.windows <= self.most_windows:
            self.window()

    def close_window(self) -> None:
        self._unsubscribe([one for one in self._subscriptions if one[2]])
        if self.most_windows is None or self.windows <= self.most_windows:
            self.window_ends()

    def listen(self, event: str, subscriber: Callable[[Any], None], *, in_window: bool = False) -> None:
        """Nothing changes where it listens already."""
        if not any(one[:2] == (event, subscriber) for one in self._subscriptions):
            self._subscriptions.append((event, subscriber, in_window))
            self.context.bus.subscribe(event, subscriber)

    def listen_in_window(self, **subscribers: Callable[[Any], None]) -> None:
        """Until the window closes."""
        for event, subscriber in subscribers.items():
            self.listen(event, subscriber, in_window=True)

    def unsubscribe(self, event: str = "", subscriber: Callable[[Any], None] | None = None) -> None:
        """Get no more of `event`, or of any; with `subscriber` only that one does not."""
        self._unsubscribe([one for one in self._subscriptions
                           if event in ("", one[0]) and subscriber in (None, one[1])])  # fmt: skip

    def _unsubscribe(self, subscriptions: list[tuple[str, Callable[[Any], None], bool]]) -> None:
        for one in subscriptions:
            self._subscriptions.remove(one)
            self.context.bus.unsubscribe(*one[:2])

    def in_a_row(self, wrong: bool, of: object = None) -> int:
        """Count how often in this window a mistake was made without a break; `of` tells an optimizer from others."""
        times = self._in_a_row[of] = self._in_a_row.get(of, 0) + 1 if wrong else 0
        return times

    def is_first(self, thing: object, most: int = 64) -> bool:
        """Whether it is asked for the first time in this window about an optimizer or a model, and about few others."""
        if id(thing) in self._judged or len(self._judged) >= most:
            return False
        self._judged.add(id(thing))
        return True

    def passes_end(self, most: int, event: str = "") -> bool:
        """Count a pass over a loader. True after `most` of them, when the guard gets no more of `event`, or of any: a
        script that repeats one batch forever pays no more."""
        self._passes_begun += 1
        if self._passes_begun > most:
            self.unsubscribe(event)
        return self._passes_begun > most

    def report(self, where: Where | None, _message: str = "", _key: object = None, **fields: object) -> bool:
        """Send a fact for the rule of this id, once for each line of the user's and `_key`.

        A comment at that line can silence it. With `_message` the fact alone is the finding: in the mode `error` it
        ends the script.
        """
        key = (*(where or ())[:2], _key)
        if key in self._reported or len(self._reported) >= self.most or is_ignored(self.id, where):
            return False
        self._reported.add(key)
        self.context.fact("guard", guard=self.id, mode=self.mode, step=self.page.steps(), where=where, **fields)
        if _message and self.mode == "error" and not self.context.ended:
            place = f" ({where[0]}:{where[1]})" if where else ""
            raise GuardError(f"{self.id}: {_message}{place}")
        return True

    def reports_at(self, where: Where | None) -> int:
        """How many facts this guard has sent for a line."""
        return sum(1 for key in self._reported if where and key[:2] == tuple(where[:2]))


def script_failed() -> bool:
    """In `finish`: whether an error ends the script."""
    error = sys.exc_info()[1]
    return error is not None and not (isinstance(error, SystemExit) and error.code in (None, 0))
