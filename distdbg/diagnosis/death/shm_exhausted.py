"""Shared memory ran out."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.diagnosis.failures.findings import findings_of
from distdbg.evidence.run import RunEvidence
from distdbg.findings import entries
from distdbg.model import Finding

DOCS = entries("shm-exhausted")


def check(evidence: RunEvidence) -> Iterable[Finding]:
    return findings_of(evidence, "shm-exhausted")
