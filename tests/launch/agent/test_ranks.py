"""What a look at a rank's process tells."""

import os
import signal
import subprocess
import sys
import time

from distdbg.collect.machine import procfs
from distdbg.launch.agent.ranks import RankProcess, find_ranks


def test_looks_at_which_a_signal_had_stopped_it_are_counted(tmp_path):
    process = subprocess.Popen(["sleep", "60"])
    rank = RankProcess(0, 0, 1, tmp_path / "page", tmp_path / "error")
    try:
        rank.attach(process.pid)
        rank.sample()
        assert rank.stopped == 0
        for number, state, looks in ((signal.SIGSTOP, "T", 2), (signal.SIGCONT, "S", 0)):
            os.kill(process.pid, number)
            while procfs.stat_fields(process.pid)[0] != state:
                pass
            rank.sample()
            rank.sample()
            assert rank.stopped == looks
    finally:
        process.kill()
        process.wait()
        rank.end(None)


def test_processes_of_ranks_are_known_by_our_variable_whatever_their_program_did_with_rank(tmp_path):
    """One that is not known by it has to be the only one, and no helper that is over at once."""
    ranks = [RankProcess(number, number % 2, 1, tmp_path / "page", tmp_path / "error") for number in (2, 3)]
    starts = """
import os, subprocess, sys
for words in (["env", "DISTDBG_RANK=2", "sleep", "60"], ["env", "-i", "sleep", "60"]):
    subprocess.Popen(words)
print(flush=True)
sys.stdin.read()
"""
    parent = subprocess.Popen(
        [sys.executable, "-c", starts], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        parent.stdout.readline()
        end = time.monotonic() + 30
        while not (pairs := find_ranks(parent.pid, ranks, set())) and time.monotonic() < end:
            time.sleep(0.05)
        ((first, known),) = pairs
        assert first.rank == 2
        while not (pairs := find_ranks(parent.pid, ranks[1:], {known})) and time.monotonic() < end:
            time.sleep(0.05)
        ((second, pid),) = pairs
        assert second.rank == 3
        assert procfs.started_at(pid) <= time.time() - 1.5
    finally:
        os.killpg(parent.pid, signal.SIGKILL)
        parent.wait()


def test_a_dead_child_is_a_rank_only_where_torchrun_would_have_started_it(tmp_path):
    """Its rank comes after those of lower local ranks. torchrun may have adopted what began before them."""
    starts = """
import subprocess, time
adopted = subprocess.Popen(["true"])
time.sleep(0.1)
first = subprocess.Popen(["env", "DISTDBG_RANK=2", "sleep", "60"])
print(flush=True)
input()
time.sleep(0.1)
second = subprocess.Popen(["true"])
print(flush=True)
input()
"""
    ranks = [RankProcess(number, number % 2, 1, tmp_path / "page", tmp_path / "error") for number in (2, 3)]
    parent = subprocess.Popen(
        [sys.executable, "-c", starts], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        parent.stdout.readline()
        end = time.monotonic() + 30
        while len(pairs := find_ranks(parent.pid, ranks, set())) != 1 and time.monotonic() < end:
            time.sleep(0.05)
        ((first, pid),) = pairs
        assert first.rank == 2
        adopted = {child for child in procfs.children(parent.pid) if child != pid}
        assert [procfs.stat_fields(child)[0] for child in adopted] == ["Z"]
        parent.stdin.write(b"\n")
        parent.stdin.flush()
        parent.stdout.readline()
        while len(pairs := find_ranks(parent.pid, ranks, adopted)) != 2 and time.monotonic() < end:
            time.sleep(0.05)
        assert [rank.rank for rank, _ in pairs] == [2, 3]
    finally:
        os.killpg(parent.pid, signal.SIGKILL)
        parent.wait()


def test_loader_worker_of_a_dead_rank_is_not_adopted_as_the_rank(tmp_path):
    """Rank 1 died; its worker inherited DISTDBG_RANK and was adopted. Rank 0 lives."""
    starts_worker = "import subprocess; print(subprocess.Popen(['sleep', '60'], stdout=-3).pid, flush=True)"
    code = f"""
import os, subprocess, sys, time
from pathlib import Path
from distdbg.launch.agent.ranks import RankProcess, find_adopted_ranks
from distdbg.launch.io.processes import become_subreaper
become_subreaper()
def start(rank, words, **how):
    return subprocess.Popen(words, env={{**os.environ, "DISTDBG_RANK": rank}}, start_new_session=True, **how)
dead = start("1", [sys.executable, "-c", {starts_worker!r}], stdout=subprocess.PIPE)
worker = int(dead.communicate()[0])
living = start("0", ["sleep", "60"])
ranks = [RankProcess(number, number, 1, Path("page"), Path("error")) for number in range(2)]
until = time.monotonic() + 30
while not (found := [(rank.rank, pid == living.pid) for rank, pid in find_adopted_ranks(ranks)]):
    assert time.monotonic() < until
    time.sleep(0.02)
parent = Path(f"/proc/{{worker}}/stat").read_text().rpartition(")")[2].split()[1]
os.kill(worker, 9)
living.kill()
print(int(parent) == os.getpid(), found)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stdout == "True [(0, True)]\n", done.stderr
