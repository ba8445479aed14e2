"""Compute the drawing of the wait graph: one box for ranks that wait alike, arrows to the ranks they wait for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from math import cos, pi, sin

from distdbg.diagnosis.waits.picture import Picture
from distdbg.evidence.rank_set import RankSet
from distdbg.evidence.stacks.threads import Frame
from distdbg.model import grouped

WIDTH = 1070.0
BOX_WIDTH, BOX_HEIGHT = 250.0, 50.0
_GAP = 30.0
_MOST_BOXES = 12
#: of a label; fewer where many arrows are near one another
_MOST_LETTERS, _FEWER = 58, 36
_LETTER = 6.7
#: of the place in a box
_BOX_LETTERS = 34
_STEP = 700.0

_Pairs = dict[tuple[int, int], list[str]]


@dataclass(frozen=True, slots=True)
class GraphBox:
    """(x, y) is its middle."""

    x: float
    y: float
    ranks: str
    place: str
    title: str
    culprit: bool


@dataclass(frozen=True, slots=True)
class GraphArrow:
    """`path` is SVG's; the label's middle is (x, y)."""

    path: str
    x: float
    y: float
    width: float
    text: str
    title: str


@dataclass(frozen=True, slots=True)
class WaitGraph:
    boxes: tuple[GraphBox, ...]
    arrows: tuple[GraphArrow, ...]
    height: float


def wait_graph(picture: Picture) -> WaitGraph | None:
    """None where no rank is known to wait for another."""
    nodes = _nodes(picture)
    of = {rank: number for number, node in enumerate(nodes) for rank in node}
    pairs: _Pairs = defaultdict(list)
    for edge in picture.waits:
        whole = {(of[a], of[b]) for a in _firsts(edge.waiting, of) for b in _firsts(edge.awaited, of)}
        for pair in sorted(whole):
            if pair[0] != pair[1] and edge.what not in pairs[pair]:
                pairs[pair].append(edge.what)
    if not any(pairs.values()):
        return None
    places, height = _layout(len(nodes), {pair for pair, words in pairs.items() if words})
    boxes = tuple(_box(node, *at, picture) for node, at in zip(nodes, places, strict=True))
    most = _MOST_LETTERS if len(boxes) <= 4 else _FEWER
    arrows = tuple(_arrow(boxes[a], boxes[b], words, most) for (a, b), words in sorted(pairs.items()) if words)
    return WaitGraph(boxes, arrows, height)


def _firsts(ranks: Iterable[int], of: Mapping[int, int]) -> list[int]:
    """One rank of each box."""
    return list({of[rank]: rank for rank in ranks}.values())


def _nodes(picture: Picture) -> list[RankSet]:
    """Ranks with the same edges share a box; if these are too many, ranks at the same place."""
    sides: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for number, edge in enumerate(picture.waits):
        for side, ranks in enumerate((edge.waiting, edge.awaited)):
            for rank in set(ranks):
                sides[rank].append((number, side))
    exact = _folded(sides, lambda rank: (tuple(sides[rank]), rank in picture.culprits))
    if len(exact) <= _MOST_BOXES:
        return exact
    spot = {rank: number for number, place in enumerate(picture.places) for rank in place.ranks}
    by_place = _folded(sides, lambda rank: (spot.get(rank, -1), rank in picture.culprits))
    by_place.sort(key=lambda node: (not node & picture.culprits, -len(node)))
    kept, rest = by_place[: _MOST_BOXES - 1], by_place[_MOST_BOXES - 1 :]
    others = RankSet()
    for node in rest:
        others |= node
    return [*kept, others] if others else kept


def _folded(ranks: Iterable[int], kind: Callable[[int], Hashable]) -> list[RankSet]:
    same = grouped((kind(rank), rank) for rank in sorted(ranks))
    return [RankSet.of(members) for members in same.values()]


def _layout(count: int, pairs: set[tuple[int, int]]) -> tuple[list[tuple[float, float]], float]:
    """Waiting ranks are left of the ranks they wait for; longer chains go downwards; a cycle is a circle."""
    steps = _steps_to_end(count, pairs)
    deepest = max(steps)
    if deepest == 0 and count > 1:
        return _circle(_along(count, pairs))
    layers = grouped((depth, node) for node, depth in enumerate(steps))
    return _columns(count, layers) if deepest == 1 else _rows(count, layers)


def _columns(count: int, layers: Mapping[int, list[int]]) -> tuple[list[tuple[float, float]], float]:
    height = max(map(len, layers.values())) * (BOX_HEIGHT + _GAP) + _GAP
    places = [(0.0, 0.0)] * count
    for depth, nodes in layers.items():
        for number, node in enumerate(nodes):
            places[node] = ((WIDTH + _STEP) / 2 - depth * _STEP, height * (number + 0.5) / len(nodes))
    return places, height


def _rows(count: int, layers: Mapping[int, list[int]]) -> tuple[list[tuple[float, float]], float]:
    """At most four side by side."""
    places = [(0.0, 0.0)] * count
    y = BOX_HEIGHT / 2 + 10
    for depth in sorted(layers, reverse=True):
        nodes = layers[depth]
        for start in range(0, len(nodes), 4):
            beside = nodes[start : start + 4]
            for number, node in enumerate(beside):
                places[node] = (WIDTH * (number + 0.5) / len(beside), y)
            y += BOX_HEIGHT + 2 * _GAP
    return places, y - BOX_HEIGHT / 2 - 2 * _GAP + 10


def _along(count: int, pairs: set[tuple[int, int]]) -> list[int]:
    """Nodes in the order in which they wait for one another."""
    order = [0]
    while len(order) < count:
        left = [node for node in range(count) if node not in order]
        order.append(next((node for node in left if (order[-1], node) in pairs), left[0]))
    return order


def _steps_to_end(count: int, pairs: set[tuple[int, int]]) -> list[int]:
    """Steps to a node that waits for none, or to a cycle."""
    goes = {node: {b for a, b in pairs if a == node} for node in range(count)}
    comes = {node: {a for a, b in pairs if b == node} for node in range(count)}
    left = set(range(count))
    while peeled := {n for n in left if not goes[n] & left or not comes[n] & left}:
        left -= peeled
    ends = {node for node in range(count) if not goes[node]} | left
    depth = dict.fromkeys(ends, 0)
    todo = list(ends)
    while todo:
        node = todo.pop(0)
        for before in comes[node] - depth.keys():
            depth[before] = depth[node] + 1
            todo.append(before)
    return [depth.get(node, 0) for node in range(count)]


def _circle(order: list[int]) -> tuple[list[tuple[float, float]], float]:
    count = len(order)
    down = 24.0 if count == 2 else 34.0 * count
    across = WIDTH / 2 - BOX_WIDTH / 2 - 60
    middle = (WIDTH / 2, down + BOX_HEIGHT)
    places = [(0.0, 0.0)] * count
    for number, node in enumerate(order):
        angle = (pi if count == 2 else -pi / 2) + 2 * pi * number / count
        places[node] = (middle[0] + across * cos(angle), middle[1] + down * sin(angle))
    return places, 2 * (down + BOX_HEIGHT)


def _box(ranks: RankSet, x: float, y: float, picture: Picture) -> GraphBox:
    places = [place for place in picture.places if place.ranks & ranks]
    first = places[0] if places else None
    words = title = ""
    if first is not None and first.user is not None and len(places) == 1:
        words = _place(first.user)
        title = f"{first.user}\n{first.source}"
    elif places:
        words = first.top if first is not None and len(places) == 1 else f"in {len(places)} places"
    culprit = bool(ranks & picture.culprits)
    return GraphBox(x, y, ranks.words(26), _cut(words, _BOX_LETTERS), f"{ranks.words(400)}\n{title}".strip(), culprit)


def _place(frame: Frame) -> str:
    """The line number is always shown: of a long file name its end is."""
    place = f"{frame.file.rpartition('/')[2]}:{frame.line}"
    if len(place) > _BOX_LETTERS:
        return "…" + place[1 - _BOX_LETTERS :]
    whole = f"{place} in {frame.function}"
    return whole if len(whole) <= _BOX_LETTERS else place


def _arrow(a: GraphBox, b: GraphBox, words: list[str], most: int) -> GraphArrow:
    text = words[0] if len(words) == 1 else f"{words[0]} (+{len(words) - 1})"
    start, end = _edge(a, b), _edge(b, a)
    # A bow to the left of its way: two arrows between the same boxes stay apart.
    bow = 0.12
    bend = ((start[0] + end[0]) / 2 - bow * (end[1] - start[1]), (start[1] + end[1]) / 2 + bow * (end[0] - start[0]))
    path = f"M{start[0]:.1f},{start[1]:.1f} Q{bend[0]:.1f},{bend[1]:.1f} {end[0]:.1f},{end[1]:.1f}"
    middle = ((start[0] + 2 * bend[0] + end[0]) / 4, (start[1] + 2 * bend[1] + end[1]) / 4)
    shown = _cut(text, most)
    return GraphArrow(path, *middle, len(shown) * _LETTER + 8, shown, "\n".join(words[:20])[:1500])


def _edge(a: GraphBox, b: GraphBox) -> tuple[float, float]:
    """The point where the straight line from a's middle to b's leaves a."""
    across, down = b.x - a.x, b.y - a.y
    scale = min(BOX_WIDTH / 2 / abs(across) if across else 9.0, BOX_HEIGHT / 2 / abs(down) if down else 9.0, 0.45)
    return a.x + across * scale, a.y + down * scale


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
