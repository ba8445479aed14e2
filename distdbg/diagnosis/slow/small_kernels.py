"""Operators that are smaller than what it takes to begin them: a GPU's kernels, or a loop of the script's own."""

from __future__ import annotations

from collections.abc import Iterator

from distdbg.diagnosis.slow._profiles import found, is_dear, of_place, places
from distdbg.evidence.run import RunEvidence
from distdbg.evidence.trace.device import SHORT_KERNEL_US
from distdbg.evidence.trace.profile import RankProfile
from distdbg.findings import entries
from distdbg.model import Finding

DOCS = entries("small-kernels")
_BUSY = 0.80
_SHARE = 0.10


def check(evidence: RunEvidence) -> Iterator[Finding]:
    for group in places(evidence, "small", lambda seen: is_dear(seen.profile, seen.dear.gain_us, _SHARE)):
        dear = group[0].dear
        each = dear.us / dear.calls
        summary = f"{dear.where} goes round a loop of {dear.calls:.0f} operators a step, of {each:.0f} us each"
        yield of_place(evidence, DOCS[0], group, summary, "Their backward, where there is one, comes on top.")
    sick = [profile for profile in evidence.profiles if _lost(profile) > 0]
    if not sick:
        return
    worst = max(sick, key=lambda p: p.share(_lost(p)))
    device, lost = worst.device, _lost(worst)
    assert device is not None
    yield found(
        evidence,
        DOCS[0],
        [worst, *(p for p in sick if p is not worst)],
        summary=f"{device.short:.0%} of {device.kernels_per_step:.0f} kernels a step are shorter than "
        f"{SHORT_KERNEL_US:.0f} us: the GPU is busy for {device.busy:.0%} of the step, and idle between them for "
        f"{worst.share(lost):.0%}",
        cause=f"At most {lost / 1000:.2f} of {worst.step_us / 1000:.2f} ms a step can be gained.",
        quote=f"median of a kernel {device.kernel_median_us:.1f} us, {device.gaps_per_step:.0f} gaps a step",
    )


def _lost(profile: RankProfile) -> float:
    device = profile.device
    if device is None or not profile.steps or device.busy >= _BUSY or device.short < 0.5:
        return 0.0
    us = device.idle.get("small kernels", 0.0) * profile.step_us
    return us if is_dear(profile, us) else 0.0
