"""Report the result of a replay: the finding of the job's own run, or why it did not come again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from distdbg.diagnosis.training.non_finite import non_finite
from distdbg.evidence.run import GuardFact, RankRecord, RunEvidence
from distdbg.launch.replay.forward import Replay
from distdbg.model import Citation, Report, Unknown

_WHY_NOT = ("all outputs and gradients were finite here ({loss}): the loss itself, a scale of the gradients, other "
            "batches of the same step or another device may have made it")  # fmt: skip


def replay_report(found: Replay, path: str) -> Report:
    """`path` is about.json's, which is cited."""
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
