"""Refuse a program that launches ranks itself, as `accelerate launch` does: a rehearsal launches them in its place."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from distdbg.errors import UsageError

#: Packages with the main function of a launcher, and its name.
LAUNCHERS = {
    "accelerate.commands": "accelerate launch",
    "deepspeed.launcher": "deepspeed",
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
}
_PARSE_TIMEOUT_S = 60
_MAX_ENTRY_POINT_BYTES = 4096
#: Accelerate's own code reads the options and the config file; it prints what it would launch.
_READ_ACCELERATE = """
import sys
del sys.path[: sys.path[:1] == [""]]
import json, os
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils.launch import prepare_multi_gpu_env
before = dict(os.environ)
args, _, _ = _validate_launch_command(launch_command_parser().parse_args(sys.argv[1:]))
if args.use_deepspeed or args.use_megatron_lm or args.tpu or args.no_python:
    sys.exit("another launcher")
changed = {name: value for name, value in prepare_multi_gpu_env(args).items() if before.get(name) != value}
print(json.dumps([args.num_machines, args.num_processes, changed, bool(args.module), args.training_script,
                  args.training_script_args]))
"""


def refuse_launcher(program: Sequence[str], *, is_module: bool) -> None:
    """Raise UsageError if the program is a launcher, with the command to type instead."""
    module = program[0] if is_module else _module_of_entry_point(program[0])
    launcher = next((name for prefix, name in LAUNCHERS.items() if f"{module}.".startswith(f"{prefix}.")), None)
    if launcher is None:
        return
    arguments = list(program[1:])
    if launcher == "accelerate launch" and arguments[:1] == ["launch"]:
        del arguments[0]
    instead = _command_for_accelerate(arguments) if launcher == "accelerate launch" else None
    hint = (
        instead or "distdbg rehearse --gpus N SCRIPT ARGUMENTS (--env NAME=VALUE for variables that the launcher sets)"
    )
    raise UsageError(f"{launcher!r} launches ranks itself, and a rehearsal does that in its place", f"Type: {hint}")


def _module_of_entry_point(program: str) -> str:
    """Return the module that a console script imports its main function from; "" for any other program."""
    path = program if Path(program).is_file() else shutil.which(program)
    if path is None:
        return ""
    try:
        with Path(path).open("rb") as file:
            text = file.read(_MAX_ENTRY_POINT_BYTES).decode(errors="replace")
    except OSError:  # the launch says why it cannot be read
        return ""
    entry_point = re.search(r"^from ([\w.]+) import", text, re.MULTILINE) if text.startswith("#!") else None
    return entry_point[1] if entry_point else ""


def _command_for_accelerate(arguments: Sequence[str]) -> str | None:
    """Return the rehearsal of what `accelerate launch ARGUMENTS` would launch; None if accelerate cannot tell."""
    try:
        answer = subprocess.run(
            [sys.executable, "-c", _READ_ACCELERATE, *arguments],
            capture_output=True, text=True, timeout=_PARSE_TIMEOUT_S, check=True,
        )  # fmt: skip
        nodes, ranks, environment, is_module, script, rest = json.loads(answer.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None
    words = ["distdbg", "rehearse"]
    if nodes > 1:
        words += ["--nodes", str(nodes)]
    words += ["--gpus", str(ranks // nodes) if ranks else "N"]
    environment.pop("OMP_NUM_THREADS", None)  # a rehearsal shares out the CPUs
    words += [word for name, value in sorted(environment.items()) for word in ("--env", f"{name}={value}")]
    return shlex.join([*words, *(["-m"] if is_module else []), script, *rest])
