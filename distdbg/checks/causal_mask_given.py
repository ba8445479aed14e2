"""Attention gets a causal mask as a tensor, where it need only be told that it is causal."""

from __future__ import annotations

from collections.abc import Iterator

from distdbg.checks._profiles import of_place, places, times
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="causal-mask-given",
        severity="warning",
        title="attention gets an explicit causal mask",
        meaning="With is_causal=True a fused kernel leaves out the half of the scores that is masked, and reads no "
        "mask. With a mask as a tensor it computes all of them; on a GPU flash attention then takes none at all.",
        how_seen="In a profile, scaled_dot_product_attention with a square mask for all of the batch, where the "
        "script's own source shows that this mask is torch.ones(...).tril(), triu of -inf above the diagonal, or "
        "generate_square_subsequent_mask, and nothing else. Only its forward is counted; below 5 % nothing is said.",
        remedy="Take attn_mask away, and say is_causal=True.",
        source="https://pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html",
    ),
)


def check(evidence: RunEvidence) -> Iterator[Finding]:
    for group in places(evidence, "masked", lambda seen: bool(seen.dear.lines)):
        dear = group[0].dear
        yield of_place(
            evidence,
            DOCS[0],
            group,
            f"{dear.where} gives attention a causal mask as a tensor {times(dear.calls)}, and not is_causal=True",
            "It is a half of the scores that need not be computed; the backward comes on top.",
        )
