"""The merged call tree: what ranks share, where they part, and which stacks count as one."""

import json
import random

from distdbg.evidence.rank_set import RankSet
from distdbg.evidence.stacks.call_tree import call_tree
from distdbg.evidence.stacks.classes import StackClasses, all_paths, classes_of, paths_of, paths_of_rank
from distdbg.report.text.tree_text import short_names
from tests.made_dump import (
    BOOT,
    IDLES,
    LOADS,
    SLEEPS,
    TORCH,
    WAITS,
    WORKS,
    frame,
    made_dump,
    rank_dump,
    thread,
    tree_of,
)


def shape(branches):
    """(ranks, [words], inner) of each branch."""
    return [(b.ranks.text(), [(e.kind, e.function, e.line) for e in b.entries], shape(b.branches)) for b in branches]


def test_ranks_share_what_they_share_and_part_by_the_line():
    tree = tree_of(made_dump({0: WAITS, 1: WAITS, 2: SLEEPS, 3: WAITS}))
    assert shape(tree.branches) == [
        ("0-3", [("frame", "<module>", 0)], [
            ("0-1,3", [("line", "<module>", 26), ("library", "all_reduce", 3252)], []),
            ("2", [("line", "<module>", 24), ("frame", "fetch", 16)], []),
        ])
    ]  # fmt: skip
    assert tree.classes == 2
    waiting = tree.branches[0].branches[0]
    assert waiting.here.text() == "0-1,3"
    assert waiting.entries[0].source == "line_26()"
    assert len(waiting.entries[1].frames) == 2 and waiting.entries[1].packages == "torch"


def test_our_own_frames_are_no_part_of_it():
    assert all("distdbg" not in str(f) for path in paths_of_rank(rank_dump(0, WAITS)) for f in path)
    assert paths_of_rank(rank_dump(0, BOOT)) == (("no Python frame",),)


def test_functions_of_libraries_do_not_part_by_the_line():
    def polls(line):
        return (frame("poll", f"{TORCH}/store.py", line), frame("<module>", line=3))

    tree = tree_of(made_dump({rank: polls(rank + 1) for rank in range(4)}))
    assert shape(tree.branches)[0][0] == "0-3" and not tree.branches[0].branches


def test_a_rank_may_stand_where_another_goes_on():
    deeper = (frame("inner", line=9), frame("outer", line=5), frame("<module>", line=3))
    tree = tree_of(made_dump({0: deeper[1:], 1: deeper, 2: deeper}))
    (top,) = tree.branches
    assert top.here.text() == "0" and top.branches[0].ranks.text() == "1-2"
    assert {leaf.here.text() for _, leaf in tree.leaves()} == {"0", "1-2"}


def test_loader_workers_that_work_branch_off_their_rank():
    workers = (thread(50, WORKS), thread(51, IDLES))
    tree = tree_of(made_dump({0: rank_dump(0, LOADS, threads=workers), 1: WAITS}))
    loading = next(b for b in tree.branches[0].branches if b.ranks.text() == "0")
    (worker,) = loading.branches
    assert [e.function for e in worker.entries] == ["loader worker", "fetch", "Data.__getitem__"]
    assert loading.here.text() == "0"


def test_idle_workers_show_only_where_all_are_idle():
    paths = paths_of((thread(1, LOADS), thread(50, IDLES), thread(51, IDLES)), 1)
    assert [path[-3 if "work" in str(path) else -1] for path in paths][1:] and len(paths) == 2
    assert "loader worker, waits for work" in paths[1]


def test_children_do_not_matter_to_a_rank_that_does_not_wait_for_them():
    assert len(paths_of((thread(1, WAITS), thread(50, WORKS)), 1)) == 1


def test_other_threads_show_where_the_main_thread_has_ended_or_waits_for_one():
    watcher = thread(1, (frame("watch", line=8), frame("Thread.run", "/usr/lib/python3.11/threading.py", 982)),
                     os_id=7, name="watcher")  # fmt: skip
    ours = thread(1, (frame("wait", "/env/distdbg/worker/session.py", 3),), os_id=8, name="")
    ended = thread(1, (frame("_shutdown", "/usr/lib/python3.11/threading.py", 1590),))
    joins = thread(1, (frame("Thread.join", "/usr/lib/python3.11/threading.py", 1100), frame("<module>", line=9)))
    for main in (ended, joins):
        paths = paths_of((watcher, ours, main), 1)
        assert len(paths) == 2 and paths[1][-2:] == ("thread watcher", frame("watch", line=8))
    assert paths_of((watcher,), 1)[1][-1] == frame("watch", line=8)
    assert len(paths_of((watcher, thread(1, WAITS)), 1)) == 1


def test_ranks_without_stacks_say_why_and_pids_do_not_part_them():
    gone = {r: rank_dump(r, process={}, missing={"stacks": f"no process {r + 70}"}) for r in (0, 1)}
    classes = classes_of(all_paths(made_dump({**gone, 2: WAITS}, missing={3: "its node's part is missing"}))).classes()
    words = {ranks.text(): paths[0][0] for paths, ranks in classes if isinstance(paths[0][0], str)}
    assert words == {
        "0-1": "no stack: the process is gone; no process N",
        "3": "no stack: its node's part is missing",
    }


def test_a_recursion_without_end_stays_a_small_tree():
    endless = (*(frame("again", line=3) for _ in range(499)), frame("<module>", line=30))
    other = (*(frame("again", line=4 if n % 7 else 3) for n in range(499)), frame("<module>", line=30))
    tree = tree_of(made_dump({0: endless, 1: other}))
    assert len(tree.ranks) == 2 and "not shown" in str(tree.branches)


def test_deep_branching_everywhere_does_not_exhaust_the_interpreter():
    random.seed(5)
    stacks = {n: tuple(frame("f", line=random.choice((1, 2))) for _ in range(n + 1)) for n in range(0, 400, 3)}
    assert len(tree_of(made_dump(stacks)).ranks) == len(stacks)


def test_the_order_of_ranks_makes_no_difference():
    ranks = {n: (WAITS, SLEEPS, LOADS)[n % 3] for n in range(12)}
    mixed = dict(random.Random(3).sample(list(ranks.items()), len(ranks)))
    assert tree_of(made_dump(ranks)).branches == tree_of(made_dump(mixed)).branches


def test_nodes_send_each_stack_once_and_the_whole_is_the_same():
    ranks = {n: SLEEPS if n == 77 else WAITS for n in range(128)}
    whole, merged = classes_of(all_paths(made_dump(ranks))), StackClasses()
    for node in range(16):
        part = StackClasses()
        for rank in range(node * 8, node * 8 + 8):
            part.add(RankSet.of((rank,)), paths_of_rank(rank_dump(rank, ranks[rank])))
        sent = json.loads(json.dumps(part.part()))
        assert len(sent["stacks"]) == (2 if node == 9 else 1)
        merged.merge(sent)
    assert merged.classes() == whole.classes()
    assert call_tree(merged).branches == call_tree(whole).branches


def test_a_foreign_part_is_left_out():
    classes = StackClasses()
    for part in ({}, {"stacks": 3, "ranks": {"a": "0"}}, {"stacks": {}, "ranks": {"a": "x", "b": 7, "c": "1"}},
                 {"stacks": {"d": [[["f", "g"], {}, 3]]}, "ranks": {"d": "2"}}):  # fmt: skip
        classes.merge(part)
    assert call_tree(classes).ranks.text() == "1-2"


def test_c_code_is_named_where_one_rank_was_looked_at():
    native = (frame("poll", "/lib/libc.so.6", 0), frame("c10d::Work::wait", "/x/libtorch_cpu.so", 0), *WAITS)
    one = rank_dump(0, WAITS)
    looked = type(one)(one.rank, one.pid, 0, "node0", one.looks, native=(thread(one.pid, native),))
    assert tree_of(made_dump({0: looked, 1: WAITS})).branches[0].native == "c10d::Work::wait (rank 0)"


def test_names_of_files():
    assert short_names(["/a/b/train.py", "/a/c/train.py", "/a/loop.py", "x.py"]) == {
        "/a/b/train.py": "b/train.py", "/a/c/train.py": "c/train.py", "/a/loop.py": "loop.py", "x.py": "x.py",
    }  # fmt: skip
