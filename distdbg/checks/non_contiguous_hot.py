"""A tensor that is not contiguous is laid out anew, again and again, for a real share of each step."""

from __future__ import annotations

from collections.abc import Iterator

from distdbg.checks._profiles import is_dear, of_place, places, times
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="non-contiguous-hot",
        severity="warning",
        title="tensors are copied in each step only to be laid out otherwise",
        meaning="A transposed or permuted tensor is a view; what needs it contiguous copies all of it, each time anew.",
        how_seen="In a profile, `contiguous` and the copies of `reshape`, by line. An attention layer needs one or "
        "two of them: below 10 % of a step nothing is said.",
        remedy="Copy once, before the loop; store it in the order in which it is read; choose an operator that takes "
        "the view (einsum, matmul, channels_last).",
        source="https://pytorch.org/docs/stable/tensor_view.html",
    ),
)
_SHARE = 0.10


def check(evidence: RunEvidence) -> Iterator[Finding]:
    for group in places(evidence, "copy", lambda seen: is_dear(seen.profile, seen.dear.gain_us, _SHARE)):
        dear = group[0].dear
        summary = f"{dear.where} copies tensors only to lay them out otherwise, {times(dear.calls)}"
        yield of_place(evidence, DOCS[0], group, summary)
