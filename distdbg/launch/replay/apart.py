"""Replay in a process of its own, whose output and end the model's code decides, and report the result."""

from __future__ import annotations

import json
import os
import tempfile
import traceback
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from distdbg import errors
from distdbg.diagnosis.training.non_finite import non_finite
from distdbg.evidence.exit_status import how_it_ended
from distdbg.evidence.run import GuardFact, RankRecord, RunEvidence
from distdbg.launch.io import processes
from distdbg.launch.replay.forward import Replay, SavedStep, replay
from distdbg.model import Citation, Report, Unknown


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


_WHY_NOT = ("all outputs and gradients were finite here ({loss}): the loss itself, a scale of the gradients, other "
            "batches of the same step or another device may have made it")  # fmt: skip


def replay_report(found: Replay, path: str) -> Report:
    """The finding of the job's own run, or why it did not come again. `path` is about.json's, which is cited."""
    rank = found.about.rank or 0
    unknown = [Unknown("whether that is how it was in the job", note) for note in found.notes]
    if found.fields is None:
        why = _WHY_NOT.format(loss=f"the backward began from {found.loss}")
        if found.about.found.get("made") == "gradient":
            why += "; or another rank, whose gradients were averaged with this one's: replay that one's"
        return Report(None, (), {}, unknown=(Unknown("what made the value that is not finite", why), *unknown))
    # What is not finite here was so in a step that was taken, or was about to be: an error.
    fact = GuardFact(rank, "non-finite", {**found.fields, "stepped": True}, None,
                     found.about.step, None, Citation(path))  # fmt: skip
    evidence = RunEvidence({}, 0, (RankRecord(rank, 0, 0, "here", guards=(fact,)),), ())
    return Report(None, tuple(non_finite.run(evidence)), {}, unknown=(*unknown, *_otherwise(found)))


def _otherwise(found: Replay) -> list[Unknown]:
    """The job's own run had named another place, and was sure of it."""
    before, here = found.about.found, found.fields or {}
    around, inner = str(before.get("module") or ""), str(here.get("module") or "")
    closer = before.get("made") == here.get("made") == "module" and (not around or inner.startswith(f"{around}."))
    if closer or _named(before) == _named(here) or before.get("made") not in ("module", "data", "loss", "gradient"):
        return []
    made, module = _named(before)
    return [Unknown("why it is another place than in the job", f"there it was {made} {module or ''}".rstrip()
                    + f"; here the backward began from {found.loss}")]  # fmt: skip


def _named(fields: Mapping[str, Any]) -> tuple[object, object]:
    return fields.get("made"), fields.get("module")
