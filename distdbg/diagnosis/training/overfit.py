"""Judge whether the loss of one repeated batch falls, and which parts of the model take no part in it."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.diagnosis.guards import Facts, facts, guard_finding
from distdbg.diagnosis.rules import rule
from distdbg.evidence.run import RunEvidence
from distdbg.evidence.training.overfitting import judge, noise, reasons
from distdbg.model import Finding

_BY_VERDICT = {"fails": "overfit-fails", "unknown": "overfit-unknown", "learns": "overfit-learns"}
_WORDS = {
    "fails": "the loss of one batch does not fall: {}",
    "unknown": "whether one batch can be learnt is unknown, because {}",
    "learns": "the loss of one batch falls: {}",
}


@rule("overfit-fails", "overfit-unknown", "overfit-learns", needs=("rank.guards",))
def overfit(evidence: RunEvidence) -> Iterable[Finding]:
    """One finding a verdict, each with its ranks."""
    by_verdict: dict[str, list[Facts]] = {}
    for fact in facts(evidence, "overfit"):
        by_verdict.setdefault(judge(fact.fields).verdict, []).append([fact])
    for verdict, sentence in _WORDS.items():
        found = [fact for one in by_verdict.get(verdict, ()) for fact in one]
        if not found:
            continue
        fields = found[0].fields
        why = [*reasons(fields), noise(fields)]
        if len(found) > 1:
            why.insert(0, f"The figures are those of rank {found[0].rank}.")
        if fields.get("ended") == "as asked":
            why.append(f"The script was ended after {fields.get('steps')} steps, as asked.")
        sure = verdict != "fails" or any(reasons(fields)) or judge(fields).constant
        yield guard_finding(evidence, _BY_VERDICT[verdict], found, sentence.format(judge(fields).words),
                      " ".join(filter(None, why)), confidence="certain" if sure else "likely")  # fmt: skip
