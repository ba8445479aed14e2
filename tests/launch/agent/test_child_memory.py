"""A rank's children and what they hold, by real processes."""

import subprocess
import sys

from distdbg.launch.agent import ranks
from distdbg.launch.agent.ranks import ChildMemory

HOLDS = "import sys; kept = bytearray(b'x') * (64 << 20); print('ready', flush=True); sys.stdin.read()"
#: A rank with a child that holds as much, and one whose own child does.
RANK = f"""
import subprocess, sys
HOLDS = {HOLDS!r}
FORKED = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {{HOLDS!r}}])"
children = [
    subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    for code in (HOLDS, FORKED)
]
print(*(child.pid for child in children if child.stdout.readline() == b"ready\\n"), flush=True)
sys.stdin.readline()
for child in children:
    child.communicate()
print("ended", flush=True)
sys.stdin.read()
"""


def test_the_largest_children_are_reported_and_looked_at_rarely(monkeypatch):
    rank = subprocess.Popen([sys.executable, "-c", RANK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        kept, below = map(int, rank.stdout.readline().split())
        memory = ChildMemory()
        children = memory.sizes(rank.pid)
        sizes = {pid: size for pid, size, _ in children}
        assert 64 << 20 <= sizes.pop(kept) < 128 << 20
        assert [size >= 64 << 20 for size in sizes.values()] == [True] and below not in sizes, "a child's child"
        assert all(command for _, _, command in children)
        rank.stdin.write("\n")
        rank.stdin.flush()
        assert rank.stdout.readline() == "ended\n"
        assert memory.sizes(rank.pid) == children, "the next look is due in ten seconds"
        monkeypatch.setattr(ranks, "_CHILDREN_EVERY_S", 0.0)
        assert memory.sizes(rank.pid) == []
    finally:
        rank.communicate(timeout=30)
