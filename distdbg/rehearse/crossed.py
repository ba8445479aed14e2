"""Find collectives of several groups that ranks enqueue in orders which contradict each other."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Generic, TypeVar

Operation = TypeVar("Operation", bound=Hashable)


@dataclass(frozen=True)
class Step(Generic[Operation]):
    """`rank` enqueues `first` before `then`."""

    rank: int
    first: Operation
    then: Operation


def find_crossing(orders: Mapping[int, Sequence[Operation]]) -> list[Step[Operation]]:
    """Return a shortest cycle through the first operation that is in one; empty if the orders agree.

    `orders` has the operations of each rank in its own order. Two ranks need not share two groups: in a mesh, where
    each rank shares one group with each other rank of its row or column, the cycle has four ranks.
    """
    contradictory = _in_cycles(orders)
    kept = {rank: [one for one in order if one in contradictory] for rank, order in orders.items()}
    for start in dict.fromkeys(one for order in kept.values() for one in order):
        if cycle := _shortest_cycle(start, kept):
            return cycle
    return []


def _in_cycles(orders: Mapping[int, Sequence[Operation]]) -> Collection[Operation]:
    """The operations that are in a cycle, or between two cycles: those without a predecessor or successor go first."""
    left = {one for order in orders.values() for one in order}
    for sequences in (orders, {rank: order[::-1] for rank, order in orders.items()}):
        followers: dict[Operation, list[Operation]] = defaultdict(list)
        predecessors: dict[Operation, int] = defaultdict(int)
        for order in sequences.values():
            own = [one for one in order if one in left]
            for first, then in pairwise(own):
                followers[first].append(then)
                predecessors[then] += 1
        free = deque(one for one in left if not predecessors[one])
        while free:
            one = free.popleft()
            left.discard(one)
            for follower in followers[one]:
                predecessors[follower] -= 1
                if not predecessors[follower]:
                    free.append(follower)
    return left


def _shortest_cycle(start: Operation, orders: Mapping[int, Sequence[Operation]]) -> list[Step[Operation]]:
    """From `start` to itself with as few changes of the rank as possible; empty if there is none."""
    places: dict[Operation, list[tuple[int, int]]] = defaultdict(list)
    for rank, order in orders.items():
        for place, one in enumerate(order):
            places[one].append((rank, place))
    reached: dict[Operation, Step[Operation]] = {}
    unseen = {rank: len(order) for rank, order in orders.items()}  # from this place on all operations are reached
    queue = deque([start])
    while queue and start not in reached:
        one = queue.popleft()
        for rank, place in places[one]:
            for then in orders[rank][place + 1 : unseen[rank]]:
                if then not in reached:
                    reached[then] = Step(rank, one, then)
                    queue.append(then)
            unseen[rank] = min(unseen[rank], place + 1)
    cycle: list[Step[Operation]] = []
    while start in reached and (not cycle or cycle[-1].first != start):
        cycle.append(reached[cycle[-1].first if cycle else start])
    return cycle[::-1]
