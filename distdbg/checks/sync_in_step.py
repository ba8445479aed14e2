"""The host reads a tensor's value in the middle of a step, and waits for it."""

from __future__ import annotations

from collections.abc import Iterator

from distdbg.checks._profiles import of_place, places, times
from distdbg.evidence.profile import Dear
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="sync-in-step",
        severity="warning",
        title="values of tensors are read on the host in each step",
        meaning="`.item()`, `.cpu()`, `.tolist()`, `float(loss)`, `if tensor > 0` end a GPU's queue: the host waits "
        "until all is computed, and the GPU then waits for the host's next launch. Read one element at a time, they "
        "are slow on a CPU, too.",
        how_seen="In a profile, these calls by line. On a GPU what counts is how long it stood idle from the moment "
        "that it ran dry until the next kernel; without one, the time in the calls. Below 5 % of a step nothing is "
        "said: a loss that is read once a step is none.",
        remedy="Keep the sum on the device and read it every 100 steps; read many values with one `.tolist()`; replace "
        "`if tensor` by torch.where.",
        source="https://pytorch.org/tutorials/recipes/recipes/tuning_guide.html#avoid-unnecessary-cpu-gpu-synchronization",
    ),
)


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
