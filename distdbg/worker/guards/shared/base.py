"""What every guard stands on, and what they share in a rank: counts, windows, facts."""

from __future__ import annotations

import sys

from distdbg.worker.exceptions import belongs_to_user
from distdbg.worker.guards.shared.atomic_saves import AtomicSaves

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any

    from distdbg.worker.bus import Bus
    from distdbg.worker.page import PageWriter

    Where = list[object]

DEFAULT_MODES = ("off", "warn")
#: A fact is told so often by one guard in one rank, and then no more.
MOST_FACTS = 8


class GuardError(BaseException):
    """What `--guard ID=error` ends the script with. No Exception: a script's `except Exception` is not meant for it."""


class GuardContext:
    """One for a rank: what its guards share."""

    def __init__(self, *, rank: int, bus: Bus, page: PageWriter, fact: Callable[..., bool], model: Callable[[], Any],
                 modes: dict[str, str]) -> None:  # fmt: skip
        self.rank, self.bus, self.page, self.fact, self.model = rank, bus, page, fact, model
        self.modes = modes
        #: files with a temporary name, where a guard's mode is `fix`
        self.saves: AtomicSaves | None = None
        #: the script has ended: there is nothing any more that an error could end
        self.ended = False

    @property
    def steps(self) -> int:
        return self.page.steps()

    @property
    def batches(self) -> int:
        return self.page.batches()

    @property
    def backwards(self) -> int:
        return self.page.backwards()

    @property
    def epochs(self) -> int:
        """Passes over a loader with steps in them, gone through to their end; counted before any guard hears of it."""
        return self.page.epochs()

    def atomic_saves(self, guard: str) -> AtomicSaves:
        """Made when the first guard asks for it."""
        if self.saves is None:
            self.saves = AtomicSaves(self.rank, lambda error: self.fact("guard-failed", guard=guard, error=repr(error)))
        return self.saves

    def distributed(self) -> Any:  # noqa: ANN401
        """torch.distributed, where this rank has at least one other beside it; else None."""
        dist = sys.modules.get("torch.distributed")
        if dist is None or not dist.is_available() or not dist.is_initialized() or dist.get_world_size() < 2:
            return None
        return dist


class Guard:
    """A subclass says what it is in plain attributes, and listens in `begin`.

    `modes` are those that it has beside `default`; "error" is for guards that a rank can judge alone, "fix" for what
    can be mended safely. `costs` and `blind` are sentences for `distdbg guards`.
    """

    id = ""
    modes: tuple[str, ...] = DEFAULT_MODES
    default = "warn"
    #: so many facts a rank
    most = MOST_FACTS
    costs = ""
    blind = ""

    def __init__(self, context: GuardContext) -> None:
        self.context = context
        self._told: set[tuple[object, ...]] = set()
        self.mode = context.modes.get(self.id, self.default)
        self._heard: list[tuple[str, Callable[[Any], None]]] = []

    def begin(self) -> None:
        """torch has just been imported."""

    def window(self) -> None:
        """A window opens: listen to steps now."""

    def window_ends(self) -> None:
        """It closes; what was listened to in it by `listen` is no longer."""

    def finish(self) -> None:
        """The script has ended."""

    def listen(self, event: str, subscriber: Callable[[Any], None]) -> None:
        self._heard.append((event, subscriber))
        self.context.bus.subscribe(event, subscriber)

    def unsubscribe(self, event: str = "") -> None:
        """Hear no more of `event`, or of anything."""
        for heard, subscriber in [pair for pair in self._heard if event in ("", pair[0])]:
            self._heard.remove((heard, subscriber))
            self.context.bus.unsubscribe(heard, subscriber)

    def say(self, where: Where | None, _sentence: str = "", _about: object = None, **fields: object) -> bool:
        """A fact for the check of this id, once a line. `where` is the user's; a comment there can forbid to speak.

        `_about` tells facts of one line apart. With `_sentence` this fact alone is the finding: in the mode `error` the
        script ends with it.
        """
        key = (*(where or ())[:2], _about)
        if key in self._told or len(self._told) >= self.most or is_ignored(self.id, where):
            return False
        self._told.add(key)
        self.context.fact("guard", guard=self.id, mode=self.mode, step=self.context.steps, where=where, **fields)
        if _sentence and self.mode == "error" and not self.context.ended:
            place = f" ({where[0]}:{where[1]})" if where else ""
            raise GuardError(f"{self.id}: {_sentence}{place}")
        return True


def users_line(skip: int = 1) -> Where | None:
    """[file, line, function] of the innermost frame that is the user's own, seen from whoever called us."""
    frame: FrameType | None = sys._getframe(skip)
    while frame is not None:
        if belongs_to_user(frame.f_code.co_filename):
            return [frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name]
        frame = frame.f_back
    return None


def is_ignored(guard: str, where: Where | None) -> bool:
    """True where that line of the source, or a comment above it, says `# distdbg: ignore[ID]`, or without an id; or
    where any line says `# distdbg: ignore-file[ID]`."""
    if where is None or not isinstance(where[1], int):
        return False
    from linecache import getlines

    line, lines = where[1], getlines(str(where[0]))
    above = lines[line - 2 : line - 1] if line > 1 else []
    near = lines[line - 1 : line] + [source for source in above if source.lstrip().startswith("#")]
    return any(_names(guard, source, "ignore") for source in near) or any(
        _names(guard, source, "ignore-file") for source in lines
    )


def _names(guard: str, source: str, word: str) -> bool:
    _, found, rest = source.partition(f"# distdbg: {word}")
    if not found or rest.startswith("-"):
        return False
    return not rest.startswith("[") or guard in rest[1:].partition("]")[0].replace(" ", "").split(",")
