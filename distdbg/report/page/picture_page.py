"""Compute the values of the template picture.html from a picture of any size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distdbg.diagnosis.waits.picture import Picture, StackClassView
from distdbg.evidence.rank_set import RankSet
from distdbg.evidence.stacks.call_tree import Branch, Entry
from distdbg.report.page.collectives_drawing import draw_groups
from distdbg.report.page.flame import ROW, WIDTH, flame
from distdbg.report.page.wait_graph import BOX_HEIGHT, BOX_WIDTH, wait_graph
from distdbg.report.text.tree_text import library_words, one_stack, short_names
from distdbg.wording import duration

_MOST_PLACES = 48
_MOST_BRANCHES = 250
_MOST_AT_ONCE = 40
_MOST_DEPTH = 30
_MOST_INSIDE = 40


def picture_values(picture: Picture) -> dict[str, Any]:
    """The values of one picture for the template."""
    drawn, other_groups = draw_groups(picture.lanes, picture.culprits)
    places = sorted(picture.places, key=lambda place: not (place.ranks & picture.culprits))
    return {
        "ranks": len(picture.tree.ranks),
        "kinds": picture.tree.classes,
        "width": WIDTH,
        "row": ROW,
        "box": (BOX_WIDTH, BOX_HEIGHT),
        "flame": flame(picture.tree, picture.culprits),
        "one_stack": one_stack(picture),
        "tree": _Views(picture).branches(picture.tree.branches, 0),
        "places": [_place(place, picture.culprits) for place in places[:_MOST_PLACES]],
        "more_places": len(places) - _MOST_PLACES,
        "graph": wait_graph(picture),
        "timelines": drawn,
        "other_groups": other_groups,
    }


def _place(place: StackClassView, culprits: RankSet) -> dict[str, Any]:
    low, high = place.quiet_s or (0.0, 0.0)
    quiet = duration(low) if duration(low) == duration(high) else f"{duration(low)} … {duration(high)}"
    steps = "" if place.steps is None else str(place.steps[0])
    return {
        "ranks": place.ranks.words(60),
        "title": place.ranks.words(600),
        "culprit": bool(place.ranks & culprits),
        "nodes": place.nodes[0] if len(place.nodes) == 1 else f"{len(place.nodes)} nodes" if place.nodes else "",
        "user": str(place.user) if place.user is not None else "",
        "source": place.source[:300],
        "top": place.top,
        "does": place.does,
        "state": place.state,
        "waits_in": place.waits_in,
        "phase": place.phase,
        "step": steps if place.steps is None or place.steps[0] == place.steps[1] else f"{steps}-{place.steps[1]}",
        "quiet": quiet if place.quiet_s is not None else "",
    }


class _Views:
    """The tree as nested values, the culprits' branches first and open, at most so many in all."""

    def __init__(self, picture: Picture) -> None:
        self.culprits = picture.culprits
        self.whole = max(len(picture.tree.ranks), 1)
        self.left = _MOST_BRANCHES
        self.names = short_names(
            {e.file for _, leaf in picture.tree.leaves() for e in leaf.entries}
            | {e.file for above, _ in picture.tree.leaves() for branch in above for e in branch.entries}
        )

    def branches(self, branches: Sequence[Branch], depth: int) -> list[dict[str, Any]]:
        ordered = sorted(branches, key=lambda b: not (b.ranks & self.culprits))
        fits = min(_MOST_AT_ONCE, self.left) if depth < _MOST_DEPTH else 0
        self.left -= min(fits, len(ordered))
        views = [self._branch(branch, depth) for branch in ordered[:fits]]
        if len(ordered) > fits:
            ranks = RankSet()
            for branch in ordered[fits:]:
                ranks |= branch.ranks
            views.append({"more": len(ordered) - fits, "ranks": ranks.words(200)})
        return views

    def _branch(self, branch: Branch, depth: int) -> dict[str, Any]:
        culprit = bool(branch.ranks & self.culprits)
        return {
            "more": 0,
            "ranks": branch.ranks.words(60),
            "title": branch.ranks.words(600),
            "share": 100 * len(branch.ranks) / self.whole,
            "culprit": culprit and not branch.ranks - self.culprits,
            "open": culprit or depth < 3,
            "entries": [self._entry(entry) for entry in branch.entries],
            "native": branch.native,
            "inner": self.branches(branch.branches, depth + 1),
        }

    def _entry(self, entry: Entry) -> dict[str, Any]:
        words = {"line": f"line {entry.line}", "library": library_words(entry)}
        inside = [str(frame) for frame in entry.frames[:_MOST_INSIDE]] if len(entry.frames) > 1 else []
        return {
            "kind": entry.kind,
            "words": words.get(entry.kind, entry.function),
            "place": self.names[entry.file] + (f":{entry.line}" if entry.line else "") if entry.kind == "frame" else "",
            "file": entry.file,
            "source": entry.source[:300],
            "inside": inside,
        }
