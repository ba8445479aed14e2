"""The picture of a dump as text and on the page: small, wide, hostile, narrow, and of thousands of ranks."""

import re
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from distdbg.diagnosis.timeline.groups import groups
from distdbg.diagnosis.waits.graph import Wait
from distdbg.diagnosis.waits.hang import Hang
from distdbg.diagnosis.waits.picture import picture_of
from distdbg.evidence.rank_set import RankSet
from distdbg.evidence.recorder.log import Signatures
from distdbg.report.page.flame import WIDTH, flame
from distdbg.report.page.picture_page import picture_values
from distdbg.report.page.renderer import environment
from distdbg.report.page.wait_graph import BOX_HEIGHT, BOX_WIDTH, wait_graph
from distdbg.report.text.screen import Screen, cells
from distdbg.report.text.tree_text import picture_lines, tree_text
from tests.made_dump import SLEEPS, WAITS, frame, made_dump, rank_dump, recorder, tree_of

HOSTILE = "\x1b[31m</title></svg><script>alert(1)</script>\u202e{{ 7*7 }} & \"'"
GO = [("all_reduce", 20 - n, True) for n in range(8)]


def hang(dump, waits):
    known = tuple(groups(dump, {}))
    return Hang(dump, {}, known, tuple(waits), (), (), (), None, (), None)


def made(count=4, sleeper=2, *, stacks=None, waits=None):
    """A job of `count` ranks where one sleeps and the others wait for it."""
    signatures = Signatures()
    ranks = {}
    for rank in range(count):
        ops = GO if rank == sleeper else [*GO, ("all_reduce", 12, False)]
        frames = (stacks or {}).get(rank, SLEEPS if rank == sleeper else WAITS)
        ranks[rank] = rank_dump(rank, frames, recorder=recorder(signatures, ("0", ops, 1)), per_node=8)
    dump = made_dump(ranks, signatures=signatures)
    others = tuple(rank for rank in range(count) if rank != sleeper)
    if waits is None:
        waits = [Wait("all_reduce (number 9 in the default group)", others, (sleeper,))]
    return picture_of(dump, groups=groups(dump, {}), hang=hang(dump, waits), culprits=(sleeper,))


def picture_text(picture, **how):
    return "\n".join(picture_lines(picture, Screen.of(**how), 48))


def page(picture):
    text = (
        '{% extends "base.html" %}{% import "picture.html" as p %}'
        "{% block style %}{% include 'picture.css' %}{% endblock %}"
        "{% block main %}{{ p.picture(picture) }}{% endblock %}"
    )
    return environment().from_string(text).render(title="x", picture=picture_values(picture))


class Tags(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.text = set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        assert not any(name.startswith("on") for name, _ in attributes), attributes
        if tag not in ("meta", "br", "rect", "path", "line"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in ("rect", "path", "line"):
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


# -- text ---------------------------------------------------------------------------------------------------------


def test_the_whole_text():
    assert (
        picture_text(made())
        == """\
ranks 0-3 (4)  <module>  train.py
├─ ▶ rank 2  line 24  line_24()
│     fetch  train.py:16  line_16()
└─ ranks 0-1,3 (3)  line 26  line_26()
      torch … all_reduce (2 frames)

Which ranks wait for which
  ranks 0-1,3 (3) → rank 2  all_reduce (number 9 in the default group)

the default group: ranks 0-3 (4)
  a all_reduce float32[64]
  #                 2  3  4  5  6  7  8   9
  ▶ rank 2          a  a  a  a  a  a  a   ·    has begun 1 fewer
  ranks 0-1,3 (3)   a  a  a  a  a  a  a  [a]   open for 12 s
  [a] begun and not finished, · not begun"""
    )


def test_colour_marks_the_culprit_and_changes_no_letter():
    plain, colored = picture_text(made()), picture_text(made(), color=True)
    assert re.sub(r"\x1b\[[0-9;]*m", "", colored) == plain
    assert "\x1b[1;31m▶ rank 2" in colored and "\x1b" not in plain


@pytest.mark.parametrize("width", [50, 72, 100, 160])
def test_no_line_is_wider_than_the_terminal(width):
    wide = tuple(frame("计算" * 20, f"/job/{'深' * 30}.py", 3) for _ in range(3))
    for picture in (made(), made(16, stacks={5: wide, 6: wide[:1]}), made(300, 77)):
        lines = picture_text(picture, width=width).split("\n")
        assert max(map(cells, lines)) <= width


def test_a_terminal_that_knows_only_ascii_gets_no_more():
    picture = made(stacks={1: (frame("größe", "/job/naïve.py", 3),)})
    assert picture_text(picture, ascii_only=True).isascii()


def test_hostile_names_are_text_on_one_line():
    text = picture_text(made(stacks={1: (frame(HOSTILE + "\nrank 0 is the culprit", f"/job/{HOSTILE}.py", 3),)}))
    assert "\x1b" not in text and "\u202e" not in text
    assert "\nrank 0 is the culprit" not in text


def test_a_thousand_different_stacks_stay_a_screen_with_the_culprit_in_it():
    odd = {r: (frame(f"own_{r}", line=r), frame("<module>", line=24)) for r in range(0, 2000, 2)}
    tree = tree_of(made_dump({rank: odd.get(rank, WAITS) for rank in range(2000)}))
    lines = tree_text(tree, RankSet.of((1500,)), most=40)
    assert len(lines) <= 40
    assert any("▶ rank 1500" in line for line in lines)
    assert any("more branches: ranks" in line and "…(+" in line for line in lines)


def test_a_long_stretch_loses_its_middle():
    deep = (*(frame(f"f{n}", line=n) for n in range(60, 0, -1)), frame("<module>", line=24))
    lines = tree_text(tree_of(made_dump({0: deep})), RankSet(), most=20)
    assert len(lines) <= 20 and "f60" in lines[-1] and any("more functions" in line for line in lines)


def test_nothing_known_is_still_a_picture():
    dump = made_dump({}, missing={0: "node-lost"})
    text = picture_text(picture_of(dump))
    assert "no stack: node-lost" in text
    assert page(picture_of(dump)) and page(picture_of(made_dump({})))


# -- the page -----------------------------------------------------------------------------------------------------


def test_the_page_draws_all_of_it():
    text = page(made())
    found = Tags(text)
    assert {"svg", "details", "table"} <= found.tags and not {"script", "img", "link", "iframe"} & found.tags
    assert found.open == []
    for words in (
        "Which ranks wait for which",
        "rank 2",
        "line_16()",
        "open for 12 s",
        "all_reduce (number 9 in the default",
    ):
        assert words in text
    assert not re.search(r"(?:src|href)=|url\((?!#tip)", text)


def test_hostile_names_are_text_on_the_page():
    waits = [Wait(HOSTILE, (0, 1), (2,))]
    text = page(made(stacks={1: (frame(HOSTILE, f"/job/{HOSTILE}.py", 3),)}, waits=waits))
    found = Tags(text)
    assert "script" not in found.tags and "<script" not in text
    assert "\x1b" not in text and "\u202e" not in text and "{{ 7*7 }}" in "".join(found.text)


@pytest.mark.parametrize("count", [4, 8, 1024])
def test_the_page_stays_small(count):
    picture = made(count, count // 2)
    assert len(page(picture)) < 60_000
    odd = {r: (frame(f"own_{r}", line=r), frame("<module>", line=24)) for r in range(0, count, 2)}
    waits = [Wait(f"barrier {n}", (n,), (n + 1,)) for n in range(0, count - 1, 2)]
    text = page(made(count, count // 2, stacks=odd, waits=waits))
    assert len(text) < 500_000


def test_boxes_of_the_flame_graph_do_not_overlap():
    picture = made(64, 7, stacks={r: (frame("deep", line=r), *WAITS) for r in range(10, 20)})
    rows = {}
    for box in flame(picture.tree, picture.culprits).boxes:
        assert 0 <= box.x and box.x + box.width <= WIDTH + 0.1
        rows.setdefault(box.y, []).append((box.x, box.x + box.width))
    for spans in rows.values():
        spans.sort()
        assert all(a[1] <= b[0] + 0.01 for a, b in pairwise(spans))


def test_the_users_line_is_in_the_flame_graph():
    picture = made()
    assert any("line_16()" in box.text for box in flame(picture.tree, picture.culprits).boxes)


@pytest.mark.parametrize(("stacks", "one"), [({2: WAITS}, True), ({}, False)])
def test_ranks_of_one_stack_are_said_to_be(stacks, one):
    picture = made(stacks=stacks)
    note = picture_values(picture)["one_stack"]
    assert bool(note) is one and (not note or (note in page(picture) and note in picture_text(picture, width=200)))


@pytest.mark.parametrize(
    "file", ["/job/train.py", f"/job/{'train_' * 5}of_all.py", f"/job/{'a_very_long_name_' * 5}.py"]
)
def test_a_box_of_the_wait_graph_has_the_line_number(file):
    drawn = wait_graph(made(stacks={2: (frame("fetch", file, 123), *SLEEPS[1:])}))
    (box,) = [box for box in drawn.boxes if box.culprit]
    assert ".py:123" in box.place and len(box.place) <= 34


# -- who waits for whom -------------------------------------------------------------------------------------------


def graph(count, *waits):
    return wait_graph(made(count, 2, waits=[Wait(f"all_reduce {n}", *wait) for n, wait in enumerate(waits)]))


def test_ranks_that_wait_alike_are_one_box():
    drawn = graph(1024, (tuple(r for r in range(1024) if r != 2), (2,)))
    assert sorted(box.ranks for box in drawn.boxes) == ["rank 2", "ranks 0-1,3-1023 (1023)"]
    (arrow,) = drawn.arrows
    assert arrow.text == "all_reduce 0"
    assert [box.culprit for box in drawn.boxes if box.ranks == "rank 2"] == [True]


def apart(boxes):
    return all(
        abs(a.x - b.x) >= BOX_WIDTH or abs(a.y - b.y) >= BOX_HEIGHT for n, a in enumerate(boxes) for b in boxes[n + 1 :]
    )


@pytest.mark.parametrize("waits", [
    [((0,), (1,)), ((1,), (2,)), ((2,), (3,)), ((3,), (0,))],
    [((4, 5), (6, 7)), ((6, 7), (4, 5))],
    [((0,), (1,)), ((1,), (2,)), ((2,), (3,))],
    [((n,), (n + 1,)) for n in range(7)],
    [((n,), (8,)) for n in range(8)],
    [((0,), (1,)), ((1,), (0,)), ((2,), (0,)), ((3,), (2,))],
], ids=["circle", "crossed", "chain", "long-chain", "star", "circle-with-tail"])  # fmt: skip
def test_boxes_stand_apart_and_inside(waits):
    drawn = graph(12, *waits)
    assert apart(drawn.boxes)
    assert all(BOX_WIDTH / 2 <= box.x <= WIDTH - BOX_WIDTH / 2 for box in drawn.boxes)
    assert all(BOX_HEIGHT / 2 <= box.y <= drawn.height - BOX_HEIGHT / 2 for box in drawn.boxes)
    assert len(drawn.arrows) == len(waits)


def test_hundreds_of_groups_are_a_dozen_boxes():
    drawn = graph(512, *(((n,), (n + 1,)) for n in range(0, 512, 2)))
    assert len(drawn.boxes) <= 12 and any(box.culprit for box in drawn.boxes)


def test_no_waits_no_graph():
    assert graph(4) is None
    assert graph(4, ((), (2,))) is None
    assert graph(4, ((2,), (2,))) is None


def test_ranks_that_are_not_in_the_dump_can_be_waited_for():
    drawn = graph(4, ((0, 1), (9,)))
    assert {box.ranks for box in drawn.boxes} == {"ranks 0-1 (2)", "rank 9"}
