"""Detect matrix products in float32 without TF32 on a GPU that has it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from distdbg.diagnosis.rules import rule
from distdbg.diagnosis.slow._profiles import cost, is_costly, profile_finding
from distdbg.evidence.run import RunEvidence
from distdbg.evidence.trace.profile import RankProfile
from distdbg.model import Finding

_HAS_TF32 = 8
_SHARE = 0.10
_FLOAT32 = re.compile(r"sgemm|gemm_f32f32_f32f32", re.IGNORECASE)
_TF32 = re.compile(r"tf32|s1688|s16816", re.IGNORECASE)


@rule("tensor-float-off", needs=("profiles",))
def tensor_float_off(evidence: RunEvidence) -> Iterator[Finding]:
    has = [p for p in evidence.profiles if p.compute_major >= _HAS_TF32 and p.steps > 0]
    slow = sorted((p for p in has if is_costly(p, _us(p), _SHARE)), key=lambda p: -p.share(_us(p)))
    if not slow:
        return
    worst = slow[0]
    name = next(row.name for row in worst.kernels if _is_float32(row.name))
    yield profile_finding(
        evidence,
        "tensor-float-off",
        slow,
        summary=f"matrix products in float32 take {worst.share(_us(worst)):.0%} of the step, without TF32",
        cause=f"Their kernels are {cost(worst, _us(worst))}; a part of that can be gained.",
        quote=name,
    )


def _us(profile: RankProfile) -> float:
    return sum(row.us for row in profile.kernels if _is_float32(row.name))


def _is_float32(name: str) -> bool:
    return _FLOAT32.search(name) is not None and _TF32.search(name) is None
