"""The hook bus: the one place where torch is listened to, for everybody. Subscribers run in the training thread.

    event         subject            when
    init          the process group  init_process_group has made the default group
    data          the iterator       a batch is wanted of a DataLoader
    batch         the iterator       it has come
    data-end      the iterator       there are no more
    forward       the module         a DDP or FSDP module, or the outermost one of fully_shard, begins its forward
    forward-end   the module         it is done (DDP alone tells)
    backward      the roots          autograd's engine is about to run
    optimizer     the optimizer      it is about to step
    step          the optimizer      it has stepped
    save          a path or None     torch.save has opened its file, and is about to write
    save-end      a path or None     all is written

A place is only touched when somebody subscribes to it, and in a way that leaves no frame of ours on the script's stack
(listening.py), so that its tracebacks stay its own. In a region that torch.compile traces nothing is heard.
"""

from __future__ import annotations

from distdbg.worker.places import EVENTS, places_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    from distdbg.worker.importing import ImportWatch
    from distdbg.worker.places import Place

    Subscriber = Callable[[Any], None]
    Dropped = Callable[[str, str, Exception], None]


class Bus:
    """`dropped(event, subscriber, error)` hears of a subscriber that raised; it is not called again."""

    def __init__(self, imports: ImportWatch, dropped: Dropped) -> None:
        self._imports = imports
        self._dropped = dropped
        self._subscribers: dict[str, tuple[Subscriber, ...]] = dict.fromkeys(EVENTS, ())
        self._installed: set[Place] = set()

    def subscribe(self, event: str, subscriber: Subscriber) -> None:
        """Raises KeyError for an event that there is not."""
        self._subscribers[event] = (*self._subscribers[event], subscriber)
        for module, place in places_of(event):
            if place not in self._installed:
                self._installed.add(place)
                self._await(module, place)

    def clear(self) -> None:
        """Nobody is told of anything any more."""
        self._subscribers = dict.fromkeys(EVENTS, ())

    def emit(self, event: str, subject: object) -> None:
        for subscriber in self._subscribers[event]:
            try:
                subscriber(subject)
            except Exception as error:
                self._subscribers[event] = tuple(s for s in self._subscribers[event] if s is not subscriber)
                self._dropped(event, getattr(subscriber, "__qualname__", "?"), error)

    def _await(self, module: str, place: Place) -> None:
        """Not before torch is whole: in the middle of its import nothing of it may be asked for."""

        def install(loaded: ModuleType) -> None:
            place(loaded, self.emit)

        self._imports.after("torch", lambda _torch: self._imports.after(module, install))
