"""torch.compile left a function at a line of the user's, and went on behind it."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.checks._guards import Facts, each_place, place
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="graph-break",
        severity="warning",
        title="torch.compile breaks its graph",
        meaning="What is compiled ends at this line, Python runs it, and another graph begins behind it: nothing is "
        "fused across it, and each part is entered through Python. In a hot function this costs what compiling "
        "was to gain.",
        how_seen="With `--watch compile` (or `distdbg compile-report`) a rank listens to torch's structured trace, "
        "which names the line and the reason each time that it compiles.",
        remedy="Move what is named out of the compiled function (prints, .item(), branches on a tensor's values, calls "
        "into C); torch.compile(fullgraph=True) makes each break an error.",
        source="https://docs.pytorch.org/docs/stable/torch.compiler_faq.html#graph-breaks",
    ),
)


def check(evidence: RunEvidence) -> Iterable[Finding]:
    return each_place(evidence, DOCS[0], _tell)


def _tell(found: Facts) -> tuple[str, str]:
    fields = found[0].fields
    count = max(int(fact.fields.get("count") or 1) for fact in found)
    what, _, explanation = str(fields.get("reason")).partition(" Explanation: ")
    why = [explanation, f"torch's hint: {fields['hint']}" if fields.get("hint") else "",
           f"Seen in {count} compilation{'s' * (count != 1)}"]  # fmt: skip
    return (
        f"the graph breaks at {place(found[0])}: {what}",
        " ".join(f"{sentence.rstrip('.')}." for sentence in why if sentence),
    )
