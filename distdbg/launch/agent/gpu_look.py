"""A process beside the agent that asks NVML for its node's GPUs: a driver that hangs blocks only this process.

    python <absolute>/distdbg/launch/agent/gpu_look.py PARENT

A line of JSON every five seconds, and one at once where a device has an Xid:

    {"gpus": [{"index": 0, "uuid": …, "utilisation": 97, …}], "because": "", "xids": [["GPU-…", 79]]}
"""

from __future__ import annotations

import sys

if __name__ == "__main__":  # started by its path: our folder must not shadow the standard library
    sys.path[0] = sys.path[0].rsplit("/distdbg/", 1)[0]

import dataclasses
import json
import os

from distdbg.collect.machine.gpus import FIGURES, GpuState, Nvml
from distdbg.launch.io.processes import die_with_parent

EVERY_S = 5.0


def main(parent: int) -> int:
    die_with_parent(parent)
    with Nvml() as nvml:
        nvml.watch_faults()
        xids: list[tuple[str, int]] = []
        while True:
            found = [_fields(state) for state in nvml.figures()]
            try:
                sys.stdout.write(json.dumps({"gpus": found, "because": nvml.because, "xids": xids}) + "\n")
                sys.stdout.flush()
            except BrokenPipeError:
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nothing more is to be said at the exit
                return 0
            if not found:
                return 0
            fault = nvml.fault(EVERY_S)
            xids = [fault] if fault else []


def _fields(state: GpuState) -> dict[str, object]:
    """What is known, and for a device that cannot be reached, why."""
    whole = dataclasses.asdict(state)
    known = {name: whole[name] for name in ("index", "uuid", *FIGURES) if whole[name] is not None}
    known |= {"mig": True} if state.instances else {}
    return known | ({"because": state.unknown["device"]} if "device" in state.unknown else {})


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
