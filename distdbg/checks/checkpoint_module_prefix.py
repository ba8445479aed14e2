"""A checkpoint holds the names of the wrapped model, and only a model that is wrapped in the same way loads it."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.checks._guards import Facts, each_place, place
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="checkpoint-module-prefix",
        severity="info",
        title="a checkpoint's names begin with module. or _orig_mod.",
        meaning="The state of the DDP or compiled wrapper was saved, and not that of the model inside. The plain model "
        "refuses these names; with strict=False it loads nothing at all, and says so in a return value only.",
        how_seen="A guard looks at the names in what torch.save is given: all of one dict of tensors begin so, and "
        "the model that is trained is wrapped. A script that names the prefix, as one that strips it does, is left "
        "alone.",
        remedy="Save model.module.state_dict(), or model._orig_mod.state_dict() below torch.compile.",
        source="https://github.com/pytorch/pytorch/issues/9176",
    ),
)


def check(evidence: RunEvidence) -> Iterable[Finding]:
    return each_place(evidence, DOCS[0], _tell)


def _tell(found: Facts) -> tuple[str, str]:
    fields = found[0].fields
    names = fields.get("names")
    first = f", the first {names[0]}" if isinstance(names, list) and names else ""
    return (
        f"the checkpoint of {place(found[0])} holds the wrapped model's names: all begin with {fields.get('prefix')}",
        f"{fields.get('count')} names{first}.",
    )
