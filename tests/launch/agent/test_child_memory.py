"""A rank's children and what they hold, by real processes."""

import os
import subprocess
import sys

from distdbg.launch.agent import ranks
from distdbg.launch.agent.ranks import ChildMemory

HOLDS = "import sys; kept = bytearray(b'x') * (64 << 20); print('ready', flush=True); sys.stdin.read()"


def test_the_largest_children_are_reported_and_looked_at_rarely(monkeypatch):
    kept = subprocess.Popen([sys.executable, "-c", HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    forked = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {HOLDS!r}])"
    below = subprocess.Popen([sys.executable, "-c", forked], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert kept.stdout.readline() == below.stdout.readline() == b"ready\n"
        memory = ChildMemory()
        children = memory.sizes(os.getpid())
        sizes = {pid: size for pid, size, _ in children}
        assert 64 << 20 <= sizes.pop(kept.pid) < 128 << 20
        assert [size >= 64 << 20 for size in sizes.values()] == [True] and below.pid not in sizes, "a child's child"
        assert all(command for _, _, command in children)
    finally:
        for process in (kept, below):
            process.communicate(timeout=30)
    assert memory.sizes(os.getpid()) == children, "the next look is due in ten seconds"
    monkeypatch.setattr(ranks, "_CHILDREN_EVERY_S", 0.0)
    assert memory.sizes(os.getpid()) == []
