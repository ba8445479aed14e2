"""`--watch numerics,gradients,shapes,compile`, or `distdbg.watch()` in a script: what a training does, and where.

Off by default, and then nothing of this is loaded. It reads what the training has made and changes none of it: no
collective, no random number, no device waited for while all is well, no tensor kept alive (but for the batch of one
step, where `--on-nonfinite dump` asks for it).
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from distdbg.worker.session import Session
    from distdbg.worker.watch.dump import Dump
    from distdbg.worker.watch.root import RootWatch

#: How a launch tells its ranks: what is watched, with commas between, and what is done at a value that is not finite.
VARIABLE = "DISTDBG_WATCH"
DUMP_VARIABLE = "DISTDBG_ON_NONFINITE"


class Watches:
    """One for a rank: at most one watch a level."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._levels: dict[str, Any] = {}
        self._root: RootWatch | None = None

    def begin(self, level: str) -> None:
        """Raises where it cannot; a level that runs already, or that there is not, is no matter."""
        session = self._session
        if level == "numerics" and level not in self._levels:
            from distdbg.worker.watch.numerics import NumericsWatch

            self._levels[level] = NumericsWatch(session, self._dump())
        elif level == "gradients" and level not in self._levels:
            from distdbg.worker.watch.gradients import GradientWatch

            self._levels[level] = GradientWatch(session)
        elif level == "shapes" and level not in self._levels:
            from distdbg.worker.watch.shapes import ShapeWatch

            self._levels[level] = ShapeWatch(session, self._heard_root())
        elif level == "compile" and level not in self._levels:
            from distdbg.worker.watch.compiling import CompileWatch

            self._levels[level] = CompileWatch(session)

    def _dump(self) -> Dump | None:
        if os.environ.get(DUMP_VARIABLE) != "dump":
            return None
        from distdbg.worker.watch.dump import Dump

        return Dump(self._session, self._heard_root())

    def _heard_root(self) -> RootWatch:
        if self._root is None:
            from distdbg.worker.watch.root import RootWatch

            self._root = RootWatch(self._session)
        return self._root

    def model(self, model: Any) -> None:  # noqa: ANN401
        """The script's own word on what is trained: for models that no DDP or FSDP wraps."""
        for watch in self._levels.values():
            watch.model(model)

    def finish(self, *, failed: bool) -> None:
        """The script has ended. What one watch raises costs the others nothing."""
        for watch in self._levels.values():
            try:
                watch.finish(failed=failed)
            except Exception as error:
                self._session.fact("watch-failed", watch=type(watch).__name__, error=repr(error))

    def end(self) -> None:
        """Not a step costs anything from here on."""
        for watch in self._levels.values():
            watch.end()


def start(session: Session, running: Watches | None = None, *, asked: bool = False) -> Watches | None:
    """Once torch is imported; None where nobody asked for it, by the variable or from the script."""
    levels = os.environ.get(VARIABLE, "").split(",") if running is None else []
    if asked:
        levels.append("numerics")
    if not any(levels):
        return running
    watches = running or Watches(session)
    for level in levels:
        watches.begin(level)
    return watches
