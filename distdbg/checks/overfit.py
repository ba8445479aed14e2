"""One batch, repeated: whether its loss can be driven down, and what of the model takes no part in it."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.checks._guards import Facts, facts, observe
from distdbg.evidence.overfitting import judge, noise, reasons
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding, FindingDoc

_SEEN = (
    "`distdbg overfit` (or `launch --overfit-batch N`) repeats the first batch of the training in each rank, reads the "
    "loss that each backward began from, and looks at gradients and optimizers before each step. "
)
_SOURCE = "https://karpathy.github.io/2019/04/25/recipe/"
DOCS = (
    FindingDoc(
        id="overfit-fails",
        severity="error",
        title="the loss of one repeated batch does not fall",
        meaning="A training that works learns a single batch by heart: its loss falls by far more than a tenth within "
        "100 steps. Where it does not, something is broken that no more data will mend.",
        how_seen=_SEEN + "The median of the last ten losses is not below the first one by more than they waver, and "
        "not by 1 %; or they are not finite.",
        remedy="Look at the parameters that are named: does the optimizer hold the model that is trained, and does the "
        "loss reach it? Else at the learning rate, at a detach, no_grad or .item() between model and loss, and at "
        "whether inputs and labels belong together.",
        source=_SOURCE,
    ),
    FindingDoc(
        id="overfit-unknown",
        severity="warning",
        title="whether one batch can be learnt is not known",
        meaning="The batch could not be repeated, no loss was seen, the script ended before, or the loss fell by too "
        "little to be sure of either; or several losses move and none falls, as those of a GAN do.",
        how_seen=_SEEN + "The loss has to fall by a tenth of its start, and by more than the last ones waver.",
        remedy="Give more steps (--overfit-batch 1000) where it fell slowly; else run the script with a DataLoader of "
        "torch, and with one loss.",
        source=_SOURCE,
    ),
    FindingDoc(
        id="overfit-learns",
        severity="info",
        title="the loss of one repeated batch falls",
        meaning="The model, the loss, the gradients and the optimizer are connected. It says nothing about the data, "
        "nor about how well the training goes on.",
        how_seen=_SEEN + "The median of the last ten losses is below the first one by a tenth of it or more.",
        remedy="Nothing is to be done. Parameters that are named may be meant to stand aside.",
        source=_SOURCE,
    ),
)
_BY_VERDICT = {"fails": DOCS[0], "unknown": DOCS[1], "learns": DOCS[2]}
_WORDS = {
    "fails": "the loss of one batch does not fall: {}",
    "unknown": "whether one batch can be learnt is unknown, because {}",
    "learns": "the loss of one batch falls: {}",
}


def check(evidence: RunEvidence) -> Iterable[Finding]:
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
        sure = verdict != "fails" or any(reasons(fields)) or "did not move" in judge(fields).words
        yield observe(evidence, _BY_VERDICT[verdict], found, sentence.format(judge(fields).words),
                      " ".join(filter(None, why)), confidence="certain" if sure else "likely")  # fmt: skip
