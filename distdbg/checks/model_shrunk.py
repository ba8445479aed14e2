"""The ranks ran a smaller model, or were to: said in every report, so that nobody takes its figures for the job's."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.evidence.run import RunEvidence
from distdbg.model import Citation, Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="model-shrunk",
        severity="warning",
        title="the model was made smaller for this run",
        meaning="--keep-layers or --skip-attention changed what was computed. Losses, throughput and checkpoints of "
        "this run are not those of the model. Where they found nothing to shorten or to skip, the run was whole.",
        how_seen="Each rank tells at its first optimizer step which layers it kept and whose attention it left out.",
        remedy="Use such a run to reproduce a hang, a crash or a memory figure; do not keep its checkpoints.",
        source="https://huggingface.co/docs/transformers/attention_interface",
    ),
)


def check(evidence: RunEvidence) -> Iterable[Finding]:
    told = [rank for rank in evidence.ranks if rank.shrunk is not None]
    if not told:
        return
    first = told[0]
    words = first.shrunk.words if first.shrunk else ""
    differ = tuple(rank.rank for rank in told if rank.shrunk and rank.shrunk.words != words)
    whole = first.shrunk is not None and first.shrunk.whole
    yield Finding(
        id="model-shrunk",
        severity="warning",
        confidence="certain",
        summary=(
            "nothing of the model could be made smaller: it ran whole" if whole else f"THE MODEL WAS SHRUNK: {words}"
        )
        + (f" (not the same on ranks {', '.join(map(str, differ))})" if differ else ""),
        remedy=DOCS[0].remedy,
        ranks=tuple(rank.rank for rank in told),
        evidence=(Citation(first.exit_path.replace("exit.json", "facts.jsonl"), None, f"rank {first.rank}"),),
    )
