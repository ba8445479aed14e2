"""The host reads a tensor's value in the middle of a step, and waits for it."""

from __future__ import annotations

from collections.abc import Iterator

from distdbg.diagnosis.slow._profiles import of_place, places, times
from distdbg.evidence.run import RunEvidence
from distdbg.evidence.trace.profile import Dear
from distdbg.findings import entries
from distdbg.model import Finding

DOCS = entries("sync-in-step")


def check(evidence: RunEvidence) -> Iterator[Finding]:
    for group in places(evidence, "wait"):
        profile, dear = group[0]
        what = "makes the host wait for the GPU" if profile.device else "reads values of tensors on the host"
        yield of_place(
            evidence,
            DOCS[0],
            group,
            f"{dear.where} {what} {times(dear.calls)}{_call(dear)}",
        )


def _call(dear: Dear) -> str:
    names = dear.place.callee.split(".") if dear.place and dear.place.callee else []
    return f", by {' and '.join(f'{name}()' for name in names)}" if names else ""
