"""Run a script, given with its arguments, and print how many of gloo's threads are left behind its process group."""

import os
import runpy
import sys

import torch.distributed as dist

destroy = dist.destroy_process_group


def gloos():
    return sum("gloo" in open(f"/proc/self/task/{task}/comm").read() for task in os.listdir("/proc/self/task"))


def destroy_and_count(*given):
    before = gloos()
    destroy(*given)
    print("threads", before, gloos(), flush=True)


dist.destroy_process_group = destroy_and_count
sys.argv = sys.argv[1:]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
