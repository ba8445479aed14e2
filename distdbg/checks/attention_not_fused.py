"""scaled_dot_product_attention computes the whole matrix of scores where a fused kernel would do."""

from __future__ import annotations

from collections.abc import Iterator

from distdbg.checks._profiles import of_place, places, times
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="attention-not-fused",
        severity="warning",
        title="attention runs on the math path where a fused kernel would do",
        meaning="The math path writes the whole matrix of scores to memory, and reads it back for the softmax: more "
        "time, and memory that grows with the square of the sequence.",
        how_seen="In a profile, `_scaled_dot_product_attention_math`, where the shapes, types and the dropout that "
        "were recorded (record_shapes=True) fit a fused kernel; only its forward is counted. Without shapes it is a "
        "possibility. Where no fused kernel would take these inputs, nothing is said.",
        remedy="Take out sdpa_kernel(SDPBackend.MATH) or enable_flash_sdp(False); run in bfloat16 on a GPU; for a "
        "causal mask say is_causal=True instead of attn_mask.",
        source="https://pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html",
    ),
)


def check(evidence: RunEvidence) -> Iterator[Finding]:
    for group in places(evidence, "attention", lambda seen: seen.dear.fused != ""):
        dear = group[0].dear
        path = f"the {dear.fused} kernel" if dear.fused else "a fused kernel perhaps"
        yield of_place(
            evidence,
            DOCS[0],
            group,
            f"{dear.where} runs attention on the math path {times(dear.calls)}, where {path} would do",
            "A fused kernel is not free either: the gain is a part of it. The backward comes on top.",
            confidence="likely" if dear.fused else "possible",
        )
