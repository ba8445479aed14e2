"""Run the guards of a rank: start them, open and close their windows, and stop a guard that fails."""

from __future__ import annotations

from distdbg.worker.guards import guard_classes
from distdbg.worker.guards.shared.base import Guard, GuardContext

#: The weights are looked at after so many steps, then after twice as many, and at last after each thousand.
_FIRST_LOOK = 11
#: A window opens after so many steps, and then after each thousand.
_OPENS_AFTER = (1, 100, 1000)
_EVERY = 1000
_STEPS = 10


class GuardRunner:
    """A guard that raises is reported and stopped."""

    def __init__(self, context: GuardContext) -> None:
        self.context = context
        self._guards: list[Guard] = []
        self._open = False

    def begin(self) -> None:
        for cls in guard_classes():
            guard = cls(self.context)
            if guard.mode != "off":
                self._guards.append(guard)
        self._each("begin")
        self.context.page.at_step(_OPENS_AFTER[0], self._toggle_window)
        self.context.page.at_step(_FIRST_LOOK, self._look)
        self.context.page.at_backward(1, self._look_at_loss)

    def finish(self) -> None:
        """At the end of the script, where exceptions have no effect, either."""
        self.context.ended = True
        if self._open:
            self._close()
        self._each("finish")
        for guard in self._guards:
            guard.unsubscribe()
        if self.context.saves is not None:
            self.context.saves.end()

    def subscriber_failed(self, subscriber: object, error: Exception) -> None:
        """A subscriber raised: if it is a guard's, the whole guard stops."""
        owner = getattr(subscriber, "__self__", None)
        if isinstance(owner, Guard) and owner in self._guards:
            self._stop(owner, error)

    def _stop(self, guard: Guard, error: Exception) -> None:
        self._guards.remove(guard)
        guard.unsubscribe()
        self.context.guard_failed(guard.id, error)

    def _toggle_window(self) -> None:
        """A step of the optimizer at which a window opens or closes."""
        steps = self.context.page.steps()
        if self._open:
            self._close()
            later = (n for n in _OPENS_AFTER if n > steps)
            self.context.page.at_step(next(later, steps - steps % _EVERY + _EVERY), self._toggle_window)
        else:
            self._open = True
            self._each("open_window")
            self.context.page.at_step(steps + _STEPS, self._toggle_window)

    def _look(self) -> None:
        steps = self.context.page.steps()
        self._each("look")
        self.context.page.at_step(steps + min(steps, _EVERY), self._look)

    def _look_at_loss(self) -> None:
        backwards = self.context.page.backwards()
        self._each("look_at_loss")
        self.context.page.at_backward(backwards + min(backwards, _EVERY), self._look_at_loss)

    def _close(self) -> None:
        self._open = False
        self._each("close_window")

    def _each(self, what: str) -> None:
        for guard in list(self._guards):
            try:
                getattr(guard, what)()
            except Exception as error:
                self._stop(guard, error)
