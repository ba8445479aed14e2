"""Replay in a process of its own: the model's code may end it, or print what it likes."""

from __future__ import annotations

import json
import os
import tempfile
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO, NoReturn

from distdbg import errors
from distdbg.evidence.exit_status import how_it_ended
from distdbg.launch.io import processes
from distdbg.launch.replay.forward import Replay, SavedStep, replay


def replay_apart(folder: Path) -> Replay:
    """As `replay`, before torch is imported here. Raises DistdbgError, also where the model's code ends its process."""
    parent = os.getpid()
    with tempfile.TemporaryFile() as answers:
        pid = os.fork()
        if not pid:
            _answer(folder, answers, parent)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        answers.seek(0)
        said = answers.read()
    if not said:
        raise errors.Refused(
            f"the model's code ended the process that ran it: {how_it_ended(status)}",
            "What it printed is above. Run its forward by hand: batch.pt, state.pt and model.pkl are in that folder.",
        )
    answer = json.loads(said)
    if "error" in answer:
        raise getattr(errors, answer["error"])(answer["message"], answer["remedy"])
    if "traceback" in answer:
        raise RuntimeError(answer["traceback"])
    return Replay(**{**answer, "about": SavedStep(**answer["about"]), "notes": tuple(answer["notes"])})


def _answer(folder: Path, answers: BinaryIO, parent: int) -> NoReturn:
    """Never returns: the stack below is another process's."""
    try:
        processes.die_with_parent(parent)
        os.dup2(2, 1)  # standard output is the report's
        said = _said(folder)
        answers.write(json.dumps(said, default=str).encode())
        answers.flush()
    finally:
        os._exit(0)


def _said(folder: Path) -> dict[str, object]:
    try:
        return asdict(replay(folder))
    except errors.DistdbgError as error:
        return {"error": type(error).__name__, "message": error.message, "remedy": error.remedy}
    except Exception:
        return {"traceback": traceback.format_exc()}
