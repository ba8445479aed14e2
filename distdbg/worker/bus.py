"""The hook bus: the one place where torch is listened to, for everybody. Subscribers run in the training thread.

    event         subject            when
    init          the process group  init_process_group has made the default group
    group-begins  a frame            a process group is about to be made; timeout_of(frame) gives its timeout
    group         (group, ranks)     a process group stands; ranks: {global rank: rank within the group}
    call          a frame            a function of torch.distributed, called by Python code, is about to communicate
    pass          the iterator       a DataLoader is about to be gone through: its first batch is wanted
    pass-begins   (iterator, batch)  its first batch has come
    data          the iterator       a batch is wanted of a DataLoader
    batch         the iterator       it has come
    data-end      the iterator       there are no more (known with a sampler that has a length)
    forward       the module         a DDP or FSDP module, or the outermost one of fully_shard, begins its forward
    forward-end   the module         it is done
    backward      a frame            autograd's engine is about to run; roots_of(frame) gives the tensors
    optimizer     the optimizer      it is about to step
    step          the optimizer      it has stepped
    scheduler     the scheduler      a scheduler of learning rates is about to be made
    scaler        the scaler         a GradScaler is about to be made
    autocast      the region         torch.autocast is about to set its own type; what it calls `prev` is in force
    clip          a frame            torch is about to clip gradients, `grads` in it; with foreach=False it is not heard
    save          a path or None     torch.save has opened its file, and is about to write
    save-end      a path or None     all is written
    write         a path             safetensors or numpy is about to write a file, or torch.distributed.checkpoint a
                                     folder for this rank alone; nothing tells the end
    state-dict    a frame            a state is about to be gathered or loaded: `options` and `model` in it (DCP), or
                                     `fsdp_state` and `module` (FSDP1, once a unit)
    profiler      a frame            torch's profiler is about to be prepared, or to begin

A place is only touched when somebody subscribes to it, and in a way that leaves no frame of ours on the script's stack
(lookup_hooks.py): its tracebacks stay the same. In a region that torch.compile traces nothing is heard. A subject
must not be kept: it would live longer than the script means it to.
"""

from __future__ import annotations

import _thread

from distdbg.worker.hook_points import HOOK_POINTS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from distdbg.worker.hook_points import Callback, Install
    from distdbg.worker.importing import ImportWatch

    Dropped = Callable[[str, Callback, Exception], None]

EVENTS = tuple(HOOK_POINTS)


class Bus:
    """`dropped(event, subscriber, error)` hears of a subscriber that raised; it is not called again."""

    def __init__(self, imports: ImportWatch, dropped: Dropped) -> None:
        self._imports = imports
        self._dropped = dropped
        self._subscribers: dict[str, tuple[Callback, ...]] = dict.fromkeys(EVENTS, ())
        self._installed: set[tuple[str, Install]] = set()
        self._lock = _thread.allocate_lock()  # the listening thread subscribes, too

    def subscribe(self, event: str, subscriber: Callback) -> None:
        """Raises KeyError for an event that there is not."""
        with self._lock:
            self._subscribers[event] = (*self._subscribers[event], subscriber)
        for module, install in HOOK_POINTS[event]:
            if (module, install) not in self._installed:
                self._installed.add((module, install))
                self._install_later(module, install)

    def subscribe_all(self, *pairs: tuple[str, Callback]) -> Callable[[], None]:
        """Returns the function that unsubscribes all of them."""
        for event, subscriber in pairs:
            self.subscribe(event, subscriber)

        def unsubscribe_all() -> None:
            for event, subscriber in pairs:
                self.unsubscribe(event, subscriber)

        return unsubscribe_all

    def unsubscribe(self, event: str, subscriber: Callback) -> None:
        """One that is not there is none to take away. Bound methods are compared, not their makings."""
        with self._lock:
            self._subscribers[event] = tuple(s for s in self._subscribers[event] if s != subscriber)

    def clear(self) -> None:
        """Nobody is told of anything any more. In a forked child: whoever held the lock is not there."""
        self._lock = _thread.allocate_lock()
        self._subscribers.update(dict.fromkeys(EVENTS, ()))

    def mute(self, *events: str) -> Callable[[], None]:
        """Nobody hears of these until what it gives is called: what we do ourselves is not the script's doing."""
        before = {event: self._subscribers[event] for event in events}
        self._subscribers.update(dict.fromkeys(events, ()))
        return lambda: self._subscribers.update(before)

    def channel(self, event: str) -> Callback:
        """The function that tells all subscribers of an event."""
        subscribers = self._subscribers

        def deliver(subject: Any) -> None:  # noqa: ANN401
            for subscriber in subscribers[event]:
                try:
                    subscriber(subject)
                except Exception as error:
                    subscribers[event] = tuple(s for s in subscribers[event] if s is not subscriber)
                    self._dropped(event, subscriber, error)

        return deliver

    def _install_later(self, module: str, install: Install) -> None:
        """After the whole import of torch: in the middle of it nothing of it may be used."""
        self._imports.after(
            "torch", lambda _torch: self._imports.after(module, lambda loaded: install(loaded, self.channel))
        )
