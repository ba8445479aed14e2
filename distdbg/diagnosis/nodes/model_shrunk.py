"""Report that the ranks ran a smaller model, or were to, in every report: its figures are not the job's."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.diagnosis.finding import build_finding
from distdbg.diagnosis.rules import rule
from distdbg.evidence.run import RunEvidence
from distdbg.model import Citation, Finding


@rule("model-shrunk", needs=("rank.shrunk",))
def model_shrunk(evidence: RunEvidence) -> Iterable[Finding]:
    made_smaller = [rank for rank in evidence.ranks if rank.shrunk is not None]
    if not made_smaller:
        return
    first = made_smaller[0]
    words = first.shrunk.words if first.shrunk else ""
    differ = tuple(rank.rank for rank in made_smaller if rank.shrunk and rank.shrunk.words != words)
    whole = first.shrunk is not None and first.shrunk.whole
    yield build_finding(
        "model-shrunk",
        confidence="certain",
        summary=(
            "nothing of the model could be made smaller: it ran whole" if whole else f"THE MODEL WAS SHRUNK: {words}"
        )
        + (f" (not the same on ranks {', '.join(map(str, differ))})" if differ else ""),
        ranks=tuple(rank.rank for rank in made_smaller),
        evidence=(Citation(first.exit_path.replace("exit.json", "facts.jsonl"), None, f"rank {first.rank}"),),
    )
