"""Detect lines of the script that cost a share of each step, from profiles: one rule for each kind of waste."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from distdbg.diagnosis.rules import rule
from distdbg.diagnosis.slow._profiles import cost, is_costly, place_finding, places, profile_finding, same_places, times
from distdbg.evidence.run import RunEvidence
from distdbg.evidence.trace.device import SHORT_KERNEL_US
from distdbg.evidence.trace.profile import CostlyPlace, RankProfile
from distdbg.model import Finding

#: Share of a step that copies, or a loop of small operators, must cost. A part of it is needed in any case.
_SHARE = 0.10
#: Numbers in the buffers that DDP broadcasts: fewer are sent in less time than a collective takes to start.
_FEWEST_BUFFER_NUMBERS = 250_000
#: Share of a step in which the GPU is busy: above it, the size of the kernels does not limit the speed.
_BUSY = 0.80
#: Share of the kernels that must be short.
_SHORT = 0.5


@rule("alloc-in-loop", needs=("profiles",))
def alloc_in_loop(evidence: RunEvidence) -> Iterator[Finding]:
    for group in places(evidence, "alloc"):
        costly = group[0].costly
        yield place_finding(
            evidence, "alloc-in-loop", group, f"{costly.where} calls {costly.what} {times(costly.calls)}"
        )
    for group in places(evidence, "constant"):
        costly = group[0].costly
        made = costly.what.removeprefix("aten::")
        summary = f"{costly.where} creates the same constant with {made} {times(costly.calls)}"
        yield place_finding(evidence, "alloc-in-loop", group, summary)


@rule("attention-not-fused", needs=("profiles",))
def attention_not_fused(evidence: RunEvidence) -> Iterator[Finding]:
    for group in places(evidence, "attention", lambda seen: seen.costly.fused != ""):
        costly = group[0].costly
        kernel = f"the {costly.fused} kernel could" if costly.fused else "a fused kernel perhaps could"
        yield place_finding(
            evidence,
            "attention-not-fused",
            group,
            f"{costly.where} computes attention on the math path {times(costly.calls)}, where {kernel} do it",
            "A fused kernel takes time too, so a part of this can be gained. The backward is not included.",
            confidence="likely" if costly.fused else "possible",
        )


@rule("buffers-broadcast", needs=("profiles",))
def buffers_broadcast(evidence: RunEvidence) -> Iterator[Finding]:
    """All ranks wait for the broadcast; the rank that waits least shows its real cost."""
    for group in same_places(evidence, "buffers"):
        numbers = group[0].costly.count
        if numbers < _FEWEST_BUFFER_NUMBERS or not all(is_costly(s.profile, s.costly.us) for s in group):
            continue
        if len(group) < len(evidence.profiles):
            continue
        least = min(group, key=lambda s: s.costly.us)
        ordered = [least, *(s for s in group if s is not least)]
        sent = f"{least.costly.count / 1e6:.1f} million numbers of buffers"
        summary = f"{least.costly.where} waits in each forward until DDP has sent {sent}"
        yield place_finding(evidence, "buffers-broadcast", ordered, summary)


@rule("causal-mask-given", needs=("profiles",))
def causal_mask_given(evidence: RunEvidence) -> Iterator[Finding]:
    for group in places(evidence, "masked", lambda seen: bool(seen.costly.lines)):
        costly = group[0].costly
        yield place_finding(
            evidence,
            "causal-mask-given",
            group,
            f"{costly.where} gives attention a causal mask as a tensor {times(costly.calls)} instead of is_causal=True",
            "Half of the scores need not be computed. The backward is not included.",
        )


@rule("data-parallel", needs=("profiles",))
def data_parallel(evidence: RunEvidence) -> Iterator[Finding]:
    ranks = {p.rank for p in evidence.profiles if p.rank is not None} | {r.rank for r in evidence.ranks}
    alone = f": each of the {len(ranks)} ranks trains its own model" if len(ranks) > 1 else ""
    for group in same_places(evidence, "parallel"):
        profile, costly = group[0]
        yield profile_finding(
            evidence,
            "data-parallel",
            [seen.profile for seen in group],
            summary=f"{costly.where} calls the model through DataParallel{alone}",
            cause=f"Its forward, which includes the model's, takes {cost(profile, costly.us)}. DataParallel averages "
            "no gradients between ranks.",
            quote=f"DataParallel.forward: {costly.us / 1000:.2f} ms a step",
            confidence="certain",
        )


@rule("loader-restarts", needs=("profiles",))
def loader_restarts(evidence: RunEvidence) -> Iterator[Finding]:
    for group in places(evidence, "workers"):
        profile, costly = group[0]
        starts = round(costly.calls * profile.steps / max(costly.count, 1))
        workers = f"{starts} workers" if starts > 1 else "a worker"
        often = "once" if costly.count == 1 else f"{costly.count} times"
        summary = f"{costly.where} starts {workers} again, {often} in {profile.steps} steps"
        yield place_finding(evidence, "loader-restarts", group, summary)


@rule("non-contiguous-hot", needs=("profiles",))
def non_contiguous_hot(evidence: RunEvidence) -> Iterator[Finding]:
    for group in places(evidence, "copy", lambda seen: is_costly(seen.profile, seen.costly.gain_us, _SHARE)):
        costly = group[0].costly
        summary = f"{costly.where} copies tensors only to change their memory layout, {times(costly.calls)}"
        yield place_finding(evidence, "non-contiguous-hot", group, summary)


@rule("small-kernels", needs=("profiles",))
def small_kernels(evidence: RunEvidence) -> Iterator[Finding]:
    """Loops of small operators in the script, and GPUs that idle between short kernels."""
    for group in places(evidence, "small", lambda seen: is_costly(seen.profile, seen.costly.gain_us, _SHARE)):
        costly = group[0].costly
        each = f"{costly.us / costly.calls:.0f} us each"
        summary = f"{costly.where} runs a loop of {costly.calls:.0f} operators a step, which take {each}"
        yield place_finding(evidence, "small-kernels", group, summary, "Their backward, if any, is not included.")
    sick = [profile for profile in evidence.profiles if _idle_between_us(profile) > 0]
    if not sick:
        return
    worst = max(sick, key=lambda p: p.share(_idle_between_us(p)))
    device, lost = worst.device, _idle_between_us(worst)
    assert device is not None
    yield profile_finding(
        evidence,
        "small-kernels",
        [worst, *(p for p in sick if p is not worst)],
        summary=f"{device.short:.0%} of {device.kernels_per_step:.0f} kernels a step are shorter than "
        f"{SHORT_KERNEL_US:.0f} us: the GPU is busy for {device.busy:.0%} of the step, and idle between them for "
        f"{worst.share(lost):.0%}",
        cause=f"At most {lost / 1000:.2f} of {worst.step_us / 1000:.2f} ms a step can be gained.",
        quote=f"median of a kernel {device.kernel_median_us:.1f} us, {device.gaps_per_step:.0f} gaps a step",
    )


def _idle_between_us(profile: RankProfile) -> float:
    """us of a step in which the GPU is idle between short kernels; 0 where that is not worth a finding."""
    device = profile.device
    if device is None or not profile.steps or device.busy >= _BUSY or device.short < _SHORT:
        return 0.0
    us = device.idle.get("small kernels", 0.0) * profile.step_us
    return us if is_costly(profile, us) else 0.0


@rule("sync-in-step", needs=("profiles",))
def sync_in_step(evidence: RunEvidence) -> Iterator[Finding]:
    for group in places(evidence, "wait"):
        profile, costly = group[0]
        what = "makes the host wait for the GPU" if profile.device else "reads values of tensors on the host"
        names = costly.place.callee.split(".") if costly.place and costly.place.callee else []
        call = f", by {' and '.join(f'{name}()' for name in names)}" if names else ""
        yield place_finding(
            evidence, "sync-in-step", group, f"{costly.where} {what} {times(costly.calls)}{call}{_copied(costly)}"
        )


def _copied(costly: CostlyPlace) -> str:
    """`, for a copy of 704 bytes to the host, which returns after 145.04 ms`; empty if no copy is known."""
    if not costly.count or not costly.calls:
        return ""
    size, lasts_ms = costly.count / costly.calls, costly.us / costly.calls / 1000
    each = "a copy" if round(costly.calls) <= 1 else "copies"
    return (
        f", for {each} of {size:,.0f} bytes to the host, which return{'s' * (each == 'a copy')} after {lasts_ms:.2f} ms"
    )


@rule("transfer-in-loop", needs=("profiles",))
def transfer_in_loop(evidence: RunEvidence) -> Iterator[Finding]:
    """The host waits for each copy to the GPU: from pageable memory, or without non_blocking."""
    for group in places(evidence, "transfer"):
        costly = group[0].costly
        summary = f"{costly.where} copies from pageable memory to the GPU {times(costly.calls)}, while no kernel runs"
        yield place_finding(evidence, "transfer-in-loop", group, summary)
    for group in places(evidence, "blocking"):
        costly = group[0].costly
        summary = f"{costly.where} copies from pinned memory to the GPU {times(costly.calls)}, and waits for the copy"
        one = place_finding(evidence, "transfer-in-loop", group, summary)
        yield replace(one, remedy="Use `.to(device, non_blocking=True)`: the memory is already pinned.")
