"""Findings from the guards of DDP, FSDP, autocast and checkpoints: a table, and rules that compare ranks or sizes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from distdbg.diagnosis.guards import Facts, GuardRow, by_place, facts, guard_finding, guard_rules, place
from distdbg.diagnosis.rules import rule
from distdbg.evidence.jsonl import number
from distdbg.evidence.run import GuardFact, RunEvidence
from distdbg.model import Finding

_MIB, _GIB = 1 << 20, 1 << 30
#: Bytes of a gathered model from which the finding is a warning: less fits beside the shards on any GPU.
_LARGE_GATHER = _GIB

GUARD_RULES = guard_rules(
    __name__,
    GuardRow(
        "autocast-dtypes-mixed",
        "{place} computes in {inner} inside autocast to {outer}",
        "Values that pass between the two are rounded to {inner} and to {outer}.",
    ),
    GuardRow(
        "checkpoint-module-prefix",
        "the checkpoint of {place} holds the names of the wrapped model: all begin with {prefix}",
        "It has {count} names; the first are {names}.",
    ),
    GuardRow(
        "checkpoint-not-atomic",
        "{place} overwrites {path} in place; distdbg wrote it under another name and renamed it",
        "There is no other checkpoint beside it.",
        when=lambda fields: fields.get("fixed"),
        confidence="likely",
    ),
    GuardRow(
        "checkpoint-not-atomic",
        "{place} overwrites {path} in place, and there is no other checkpoint beside it",
        "If the job is killed while it writes, no checkpoint is left.",
        confidence="likely",
    ),
    GuardRow(
        "clip-before-unscale",
        "gradients are clipped to {bound} at {place} before the GradScaler unscales them",
        "The scaler divides by its scale later, in its step: what is left of the gradients becomes too small.",
    ),
    GuardRow(
        "ddp-without-device-ids",
        "the model of {place} is on cuda:{own}, and the current device is cuda:{current}",
        "DDP got no device_ids, and the script did not choose this rank's GPU.",
    ),
    GuardRow(
        "fsdp-dtype-mismatch",
        "FSDP stores parameters in {kept} and computes in {computed} in the forward at {place}",
        "Values that were rounded stay rounded, and gathering takes more bytes than the parameters have.",
        when=lambda fields: fields.get("does") == "widens",
    ),
    GuardRow(
        "fsdp-dtype-mismatch",
        "the parameters in the forward at {place} are {kept}: FSDP's mixed precision keeps no float32 copy of them",
        "The optimizer steps on {kept}, which rounds small updates to nothing. The policy only casts inputs.",
    ),
    GuardRow(
        "fsdp-layer-left-out",
        "{count} of {layers} layers of type {layer} are not FSDP units in the forward at {place}: {names}",
        "Their {parameters} parameters are gathered with the unit around them, and freed only with it.",
    ),
    GuardRow(
        "fsdp-single-unit",
        "FSDP gathers {largest} of {total} parameters at once for the forward at {place}",
        "The number of FSDP units is {units}. The model has {layers} layers of type {layer} that could be units.",
    ),
    GuardRow(
        "loss-outside-autocast",
        "the loss whose backward begins at {place} is computed in {dtype}",
        "The forward runs under autocast, and {loss} runs outside it.",
    ),
    GuardRow(
        "mixed-devices",
        "the forward at {place} got {inputs}, and the model is on {parameters}",
        "The forward raised an exception, which ended the script.",
    ),
    GuardRow(
        "redundant-allreduce",
        "the backward at {place} reduces gradients {reduced} times for each step of the optimizer",
        "One all-reduce for each step gives the same gradients.",
    ),
    GuardRow(
        "scaler-misused",
        "the forward runs in float16, and the optimizer steps at {place} without a GradScaler",
        "Small gradients become zero in float16 unless the loss is scaled.",
        when=lambda fields: fields.get("misuse") == "float16",
        severity="warning",
        remedy="Use scaler.scale(loss).backward(), scaler.step(optimizer) and scaler.update(); or use bfloat16.",
    ),
    GuardRow(
        "scaler-misused",
        "the forward runs in bfloat16, and the optimizer steps at {place} through a GradScaler that it does not need",
        "In each step the scaler waits for the device, to check whether a gradient overflowed.",
        when=lambda fields: fields.get("misuse") == "bfloat16",
        severity="info",
        remedy="Remove the scaler, or create it with enabled=False.",
    ),
    GuardRow(
        "scaler-misused",
        "the loss is scaled by a GradScaler, and the optimizer steps at {place} without it",
        "The gradients still have the scale of the GradScaler, which is some thousands.",
        when=lambda fields: fields.get("misuse") == "past",
        severity="warning",
        remedy="Replace optimizer.step() by scaler.step(optimizer) and scaler.update().",
    ),
)


@rule("full-state-dict-gather", needs=("rank.guards",))
def full_state_dict_gather(evidence: RunEvidence) -> Iterator[Finding]:
    """The size decides how severe it is."""
    for found in by_place(facts(evidence, "full-state-dict-gather")):
        fields = found[0].fields
        size = fields.get("bytes")
        size = size if isinstance(size, int) else 0
        words = f"{size / _GIB:.1f} GiB" if size >= _GIB else f"{size / _MIB:.0f} MiB"
        more = " The state of its optimizers is added to that." if fields.get("with_optimizer") else ""
        yield guard_finding(
            evidence,
            "full-state-dict-gather",
            found,
            f"each rank gathers the whole model at {place(found[0])}: {words} on its own {fields.get('device')}",
            f"These are {fields.get('parameters')} parameters, without offload to the CPU.{more}",
            severity="warning" if size >= _LARGE_GATHER else "info",
        )


@rule("checkpoint-race", needs=("rank.guards",))
def checkpoint_race(evidence: RunEvidence) -> Iterator[Finding]:
    """Several ranks of a host wrote one file (path and inode) at the same step."""
    host = {rank.rank: rank.host for rank in evidence.ranks}
    same: dict[tuple[str | None, str, str, int | None], dict[int, GuardFact]] = {}
    for fact in facts(evidence, "checkpoint-race"):
        key = host.get(fact.rank), str(fact.fields.get("path")), str(fact.fields.get("inode")), fact.step
        same.setdefault(key, {}).setdefault(fact.rank, fact)
    lines = set()
    for (_, path, _, step), by_rank in same.items():
        found = list(by_rank.values())
        if len(found) < 2 or found[0].where in lines:
            continue
        lines.add(found[0].where)
        summary = f"{len(found)} ranks write {path} at {place(found[0])}"
        if found[0].fields.get("kept"):
            last = f"{path.rpartition('/')[2]}.rank{max(by_rank):05d}"
            summary += f"; rank {min(by_rank)} kept the name"
            cause = f"All wrote at step {step}. The files of the other ranks have their rank in the name ({last})."
        else:
            cause = f"All wrote at step {step}{_when(found)}."
        yield guard_finding(evidence, "checkpoint-race", found, summary, cause)


def _when(found: Facts) -> str:
    """Whether the ranks wrote at the same time; empty where a fact does not say when it ended."""
    times = [(number(fact.fields, "began") or 0.0, number(fact.fields, "ended")) for fact in found]
    spans = sorted((began, ended) for began, ended in times if ended)
    if len(spans) < len(times):
        return ""
    overlap = any(later[0] < earlier[1] for earlier, later in pairwise(spans))
    return ", at the same time" if overlap else ", one after the other in this run"
