"""DDP without device_ids, in a rank whose current GPU is not its model's."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.diagnosis.guards import Facts, each_place, place
from distdbg.evidence.run import RunEvidence
from distdbg.findings import entries
from distdbg.model import Finding

DOCS = entries("ddp-without-device-ids")


def check(evidence: RunEvidence) -> Iterable[Finding]:
    return each_place(evidence, DOCS[0], _tell)


def _tell(found: Facts) -> tuple[str, str]:
    own, current = found[0].fields.get("own"), found[0].fields.get("current")
    return (
        f"the model of {place(found[0])} is on cuda:{own} while the current device is cuda:{current}",
        "DDP was given no device_ids, and nothing has chosen this rank's GPU.",
    )
