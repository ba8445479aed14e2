"""A process that tests/fork_server forks sees of itself what one sees that was started."""

import json
import sys

import pytest

from tests.conftest import run_command

LOOK = """
import json, os, random, signal, sys
was_there = "torch" in sys.modules
import numpy, torch
import torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
names = sorted(os.environ.keys() - {"MASTER_PORT", "DISTDBG_RUN_DIR", "DISTDBG_NODE_DIR", "LOOK"})
found = {
    "words": open("/proc/self/cmdline").read().split("\\0"),
    "environment": sorted(
        line.partition("=")[0] for line in open("/proc/self/environ").read().split("\\0")
        if line.partition("=")[0] in names
    ),
    "names": names,
    "argv": sys.argv, "orig_argv": sys.orig_argv, "path": sys.path, "main": sorted(vars(sys.modules["__main__"])),
    "folder": os.getcwd(), "leads": os.getsid(0) == os.getpid(), "mask": os.umask(0o22),
    "parent": open(f"/proc/{os.getppid()}/cmdline").read().split("\\0")[1:3],
    "descriptors": [os.readlink(f"/proc/self/fd/{n}").split("/")[-1].split("[")[0] for n in range(3)],
    "signals": [str(signal.getsignal(n)).split(" at ")[0] for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)],
    "threads": torch.get_num_threads(),
}
drawn = [float(torch.rand(1)), random.random(), numpy.random.rand()]
json.dump([was_there, found, drawn], open(f"{os.environ['LOOK']}.{rank}", "w"))
dist.destroy_process_group()
raise SystemExit(3 if rank else 0)
"""


@pytest.mark.slow
def test_a_rank_is_as_if_it_had_been_started(tmp_path):
    (tmp_path / "look.py").write_text(LOOK)
    words = [sys.executable, "-m", "distdbg", "launch", "--nproc-per-node", "2", "look.py", "--lr", "1"]
    seen = {}
    for how, given in (("forked", {}), ("started", {"MALLOC_ARENA_MAX": "8"})):
        done = run_command(words, tmp_path, env={"LOOK": str(tmp_path / how), **given})
        assert done.code == 3, done
        seen[how] = [json.loads((tmp_path / f"{how}.{rank}").read_text()) for rank in range(2)]
    assert [[was_there for was_there, _, _ in ranks] for ranks in seen.values()] == [[True] * 2, [False] * 2]
    for numbers in zip(*(drawn for ranks in seen.values() for _, _, drawn in ranks), strict=True):
        assert len(set(numbers)) == 4, "each rank draws its own"
    for (_, forked, _), (_, started, _) in zip(*seen.values(), strict=True):
        for names in (started["names"], started["environment"]):
            names.remove("MALLOC_ARENA_MAX")
        assert forked == started
