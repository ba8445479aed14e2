"""Watch numbers of a training: `--watch numerics,gradients,shapes,compile`, or `distdbg.watch()` in a script.

Off by default, and then nothing of this is loaded. It reads the training's tensors and changes none: no collective, no
random number, no wait for a device unless something is wrong, no tensor kept alive (but for the batch of one step, for
`--on-nonfinite dump`).
"""

from __future__ import annotations

import os

from distdbg.worker.models import weak_or_gone

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from distdbg.worker.context import RankContext
    from distdbg.worker.watch.root import RootWatch
    from distdbg.worker.watch.search import Search


#: Set by the launch: the levels, separated by commas, and the action for a value that is not finite.
VARIABLE = "DISTDBG_WATCH"
DUMP_VARIABLE = "DISTDBG_ON_NONFINITE"
LEVELS = ("numerics", "gradients", "shapes", "compile")


class Watches:
    """One for a rank: at most one watch a level."""

    def __init__(self, context: RankContext) -> None:
        self._context = context
        self._levels: dict[str, Any] = {}
        self._root: RootWatch | None = None
        self._model: Callable[[], Any] = lambda: None
        self._search: Search | None = None

    def begin(self, level: str) -> None:
        """A level that fails to begin is reported and left out; one that runs already continues."""
        if level in self._levels:
            return
        try:
            if level != "compile" and self._search is None and self._model() is None:
                from distdbg.worker.watch.search import Search

                # before the level: the search gets an optimizer first, so that layers have names
                self._search = Search(self._context, self._holds, self._found)
            watch = self._levels[level] = self._made(level)
            if (model := self._model()) is not None:
                watch.model(model)
        except Exception as error:
            self._context.fact("watch-failed", watch=level, error=repr(error))

    def _made(self, level: str) -> Any:
        """Each level loads its own modules: one that cannot be loaded does not stop the others."""
        context = self._context
        if level == "gradients":
            from distdbg.worker.watch.gradients import GradientWatch

            return GradientWatch(context)
        if level == "compile":
            from distdbg.worker.watch.compiling import CompileWatch

            return CompileWatch(context)
        if level == "shapes":
            from distdbg.worker.watch.shapes import ShapeWatch

            return ShapeWatch(context, self._root_watch())
        from distdbg.worker.watch.dump import NonfiniteDump
        from distdbg.worker.watch.numerics import NumericsWatch

        dumps = os.environ.get(DUMP_VARIABLE) == "dump"
        return NumericsWatch(context, NonfiniteDump(context, self._root_watch()) if dumps else None)

    def _root_watch(self) -> RootWatch:
        """One for all levels that need it."""
        if self._root is None:
            from distdbg.worker.watch.root import RootWatch

            self._root = RootWatch(self._context)
        return self._root

    def model(self, model: Any) -> None:
        """The script names its model: for models that no DDP or FSDP wraps."""
        if callable(getattr(model, "named_modules", None)):
            self._stop_searching()
            self._found(model)
        else:
            self._context.fact("watch-failed", watch="model", error=f"{type(model).__name__} is no module")

    def _found(self, model: Any) -> None:
        """The model that is trained; None where it is not certain any more."""
        self._model = weak_or_gone(model)
        self._each(lambda watch: watch.model(model))

    def _holds(self, module: Any) -> None:
        """The module has all optimized parameters: layers have names before the model is known."""
        if "gradients" in self._levels:
            self._levels["gradients"].model(module)

    def finish(self, *, failed: bool) -> None:
        """The script has ended."""
        self._each(lambda watch: watch.finish(failed=failed))
        self._stop_searching()

    def _each(self, do: Callable[[Any], None]) -> None:
        """An exception of one watch does not stop the others."""
        for watch in self._levels.values():
            try:
                do(watch)
            except Exception as error:
                self._context.fact("watch-failed", watch=type(watch).__name__, error=repr(error))

    def end(self) -> None:
        """From here on steps cost nothing."""
        self._stop_searching()
        for watch in self._levels.values():
            watch.end()

    def _stop_searching(self) -> None:
        if self._search is not None:
            self._search.end()


def words(levels: str | Iterable[str]) -> list[str]:
    """A word, words separated by commas, or several words; any other value counts as an unknown word."""
    if isinstance(levels, str):
        levels = levels.split(",")
    elif not isinstance(levels, (list, tuple, set, frozenset)):
        levels = [repr(levels)]
    return [word for level in levels if (word := str(level).strip())]


def start(context: RankContext, running: Watches | None = None, asked: Iterable[str] | None = None) -> Watches | None:
    """Once torch is imported; None where neither the launch nor the script asked for it. Unknown levels are left
    out."""
    levels = words(os.environ.get(VARIABLE, "")) if asked is None else asked
    known = [level for level in levels if level in LEVELS]
    if not known:
        return running
    watches = running or Watches(context)
    for level in known:
        watches.begin(level)
    return watches
