"""FSDP's mixed precision does nothing for parameters of the type that they have."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.checks._guards import Facts, each_place, place
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="fsdp-dtype-mismatch",
        severity="info",
        title="FSDP's mixed precision does not fit the parameters",
        meaning="Mixed precision keeps parameters in float32, where the optimizer steps, and computes in half "
        "precision. Over a model that is of half precision already it only casts inputs, and small updates are rounded "
        "away; with float32 to compute in it gathers twice the bytes and wins back none of what was rounded.",
        how_seen="A guard compares the policy with the parameters that want gradients, once: all units have one and "
        "the same mismatch. A policy that asks for another type in reductions, buffers or outputs is of use.",
        remedy="Give FSDP the model in float32 and param_dtype=torch.bfloat16, reduce_dtype=torch.float32; or, to "
        "train in half precision throughout, give it inputs of that type and leave the policy out.",
        source="https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html"
        "#torch.distributed.fsdp.MixedPrecisionPolicy",
    ),
)


def check(evidence: RunEvidence) -> Iterable[Finding]:
    return each_place(evidence, DOCS[0], _tell)


def _tell(found: Facts) -> tuple[str, str]:
    fields = found[0].fields
    kept, computed = fields.get("kept"), fields.get("computed")
    if fields.get("does") == "widens":
        return (
            f"FSDP computes in {computed} what is kept in {kept}, in the forward at {place(found[0])}",
            "What was rounded stays rounded; gathering takes more bytes than the parameters have.",
        )
    return (
        f"FSDP's mixed precision has no float32 to keep in the forward at {place(found[0])}: parameters are {kept}",
        f"The optimizer steps on {kept}, which rounds small updates away; all that the policy does is to cast inputs.",
    )
