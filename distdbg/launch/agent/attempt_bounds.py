"""Record at the beginning and the end of an attempt what the kernel counts and reports of memory and crashes."""

from __future__ import annotations

import time

from distdbg.collect.machine.cgroups import memory_counters
from distdbg.collect.machine.kernel_log import kernel_messages
from distdbg.launch.agent.node import Node
from distdbg.protocol import agent_events as events


class AttemptBounds:
    """An attempt's own counters and messages: those of an earlier attempt say nothing about its ranks."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._since = time.time()

    def begin(self) -> None:
        self._since = time.time()
        self._node.event(events.Cgroup(when="before", more=memory_counters()))

    def end(self, *, failed: bool) -> None:
        messages, because = kernel_messages(self._since) if failed else ([], "not asked: nothing failed")
        self._node.event(events.Kernel(messages=messages, because=because))
        self._node.event(events.Cgroup(when="after", more=memory_counters()))
