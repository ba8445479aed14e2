"""Deliver events of torch to subscribers, in the training thread: the hook bus.

    event         subject            when
    init          the process group  init_process_group has made the default group
    group-begins  a frame            a process group is about to be made; timeout_of(frame) gives its timeout
    group         (group, ranks)     a process group is complete; ranks: {global rank: rank within the group}
    call          a frame            a function of torch.distributed, called by Python code, is about to communicate
    pass          the iterator       a pass over a DataLoader begins: the script requests its first batch
    pass-begins   (iterator, batch)  its first batch has arrived
    data          the iterator       the script requests a batch from a DataLoader
    batch         the iterator       it has arrived
    data-end      the iterator       there are no more (only with a sampler that has a length)
    forward       the module         a DDP or FSDP module, or the outermost one of fully_shard, begins its forward
    forward-end   the module         it is done
    backward      a frame            autograd's engine is about to run; roots_of(frame) gives the tensors
    optimizer     the optimizer      it is about to step
    step          the optimizer      it has stepped
    replay        the graph          a CUDA graph is about to be replayed
    scheduler     the scheduler      a scheduler of learning rates is about to be made
    scheduler-step the scheduler     it has counted a move
    scaler        the scaler         a GradScaler is about to be made
    autocast      the region         torch.autocast is about to set its own type; what it calls `prev` is in force
    clip          a frame            torch is about to clip gradients, `grads` in it; none with foreach=False
    save          a path or None     torch.save has opened its file, and is about to write
    save-end      a path or None     all is written
    write         a path             safetensors or numpy is about to write a file, or torch.distributed.checkpoint a
                                     folder for this rank alone; there is no event at the end
    state-dict    a frame            a state is about to be gathered or loaded: `options` and `model` in it (DCP), or
                                     `fsdp_state` and `module` (FSDP1, once a unit)
    profiler      a frame            torch's profiler is about to be prepared, or to begin

A hook is only installed when a subscriber needs it, and leaves no frame of ours on the script's stack
(lookup_hooks.py): its tracebacks stay the same. A region that torch.compile traces sends no events. Subscribers must
not keep a subject: it would live longer than the script intends.
"""

from __future__ import annotations

import _thread

from distdbg.worker.hooks.hook_points import HOOK_POINTS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from distdbg.worker.hooks.hook_points import Callback, Channel, HookPoint
    from distdbg.worker.hooks.importing import ImportWatch

    Dropped = Callable[[str, Callback, Exception], None]

EVENTS = tuple(HOOK_POINTS)
#: Called with the subject of an event that nobody subscribes to: written in C, it costs no frame.
_NOBODY: Callback = id  # type: ignore[assignment]


class Bus:
    """`dropped(event, subscriber, error)` is called for a subscriber that raised; it gets no more events."""

    def __init__(self, imports: ImportWatch, dropped: Dropped) -> None:
        self._imports = imports
        self._dropped = dropped
        self._subscribers: dict[str, tuple[Callback, ...]] = dict.fromkeys(EVENTS, ())
        self._direct: set[Callback] = set()
        self._to_all = {event: self._deliverer(event) for event in EVENTS}
        self._channels: dict[str, Channel] = {event: [_NOBODY] for event in EVENTS}
        self._installed: set[HookPoint] = set()
        self._lock = _thread.allocate_lock()  # the listening thread subscribes, too

    def subscribe(self, event: str, subscriber: Callback, *, never_raises: bool = False) -> None:
        """One that never raises is called without a frame of the bus while it is alone: a hook calls it itself.

        Raises KeyError for an unknown event.
        """
        with self._lock:
            if never_raises:
                self._direct.add(subscriber)
            self._set(event, (*self._subscribers[event], subscriber))
        for point in HOOK_POINTS[event]:
            if point not in self._installed:
                self._installed.add(point)
                self._install_later(point)

    def subscribe_all(self, *pairs: tuple[str, Callback]) -> Callable[[], None]:
        """Returns the function that unsubscribes all of them."""
        for event, subscriber in pairs:
            self.subscribe(event, subscriber)

        def unsubscribe_all() -> None:
            for event, subscriber in pairs:
                self.unsubscribe(event, subscriber)

        return unsubscribe_all

    def unsubscribe(self, event: str, subscriber: Callback) -> None:
        """Nothing happens for one that is not subscribed. Bound methods are compared by ==."""
        with self._lock:
            self._set(event, tuple(s for s in self._subscribers[event] if s != subscriber))

    def clear(self) -> None:
        """Remove all subscribers. In a forked child: the thread that held the lock does not exist there."""
        self._lock = _thread.allocate_lock()
        for event in EVENTS:
            self._set(event, ())

    def mute(self, *events: str) -> Callable[[], None]:
        """Stop these events until the returned function is called, while our own code would cause them."""
        before = {event: self._subscribers[event] for event in events}
        for event in events:
            self._set(event, ())

        def unmute() -> None:
            for event, subscribers in before.items():
                self._set(event, subscribers)

        return unmute

    def channel(self, event: str) -> Channel:
        """What delivers an event to all subscribers: for its hooks, which keep it."""
        return self._channels[event]

    def _set(self, event: str, subscribers: tuple[Callback, ...]) -> None:
        self._subscribers[event] = subscribers
        alone = len(subscribers) == 1 and subscribers[0] in self._direct
        self._channels[event][0] = subscribers[0] if alone else self._to_all[event] if subscribers else _NOBODY

    def _deliverer(self, event: str) -> Callback:
        subscribers = self._subscribers

        def deliver(subject: Any) -> None:
            for subscriber in subscribers[event]:
                try:
                    subscriber(subject)
                except Exception as error:
                    self._set(event, tuple(s for s in subscribers[event] if s is not subscriber))
                    self._dropped(event, subscriber, error)

        return deliver

    def _install_later(self, point: HookPoint) -> None:
        """After the import of torch: during the import no part of it may be used."""
        name, install, arguments = point
        self._imports.after(
            "torch",
            lambda _torch: self._imports.after(name, lambda module: install(module, self.channel, *arguments)),
        )
