"""Tell from DDP's own messages whose model differs: the ranks that raise need not be the ones.

DDP compares the numbers of parameters of all ranks, and their sizes with those of process 0 of its group (torch,
`_verify_param_shape_across_processes`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from distdbg.diagnosis.failures.findings import citations, who
from distdbg.diagnosis.failures.record import RankFailure
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding

_COUNTS = re.compile(r"Rank (\d{1,9}) has (\d{1,18}) params, while rank (\d{1,9}) has inconsistent (\d{1,18}) params")
_SIZES = re.compile(
    r"\[(?:Rank )?(\d{1,9})\]: params\[(\d{1,9})\] in this process with (sizes|strides) \[([\d, ]{0,200})\]"
)


def named(evidence: RunEvidence, found: Finding, group: Sequence[RankFailure]) -> Finding:
    """The finding with the ranks whose model differs from that of more than half of them; where there is no such
    half, with all of them. As it is for other messages, and for ranks that are numbers of a smaller group."""
    models = _counts(group) or _sizes(evidence, group)
    if len(models) < 2:
        return found
    odd, decided = apart(models)
    by_model = {m: tuple(sorted(r for r in models if models[r] == m)) for m in dict.fromkeys(models.values())}
    sides = " and ".join(f"{who(evidence, ranks)} {model}" for model, ranks in by_model.items())
    return replace(
        found,
        summary=f"the ranks built models that differ: {sides}",
        cause=found.cause if decided else f"{found.cause} Which of them is as meant is not known.",
        ranks=odd,
        nodes=(),
        evidence=citations(sorted(group, key=lambda failure: failure.rank.rank not in odd)),
    )


def apart(values: Mapping[int, str]) -> tuple[tuple[int, ...], bool]:
    """The ranks whose value is not that of more than half of them, and whether there is such a half: else all ranks."""
    common, times = Counter(values.values()).most_common(1)[0]
    decided = 2 * times > len(values)
    return tuple(sorted(rank for rank, value in values.items() if not decided or value != common)), decided


def _counts(group: Sequence[RankFailure]) -> dict[int, str]:
    """What the model of each rank has, by rank; empty where no message tells."""
    models = {}
    for failure in group:
        if told := _COUNTS.search(failure.message):
            if int(told[1]) != failure.rank.rank:
                return {}
            models[int(told[1])] = f"has {told[2]} parameters"
            models.setdefault(int(told[3]), f"has {told[4]} parameters")
    return models


def _sizes(evidence: RunEvidence, group: Sequence[RankFailure]) -> dict[int, str]:
    """A rank that does not complain has the sizes of process 0, which are not told."""
    models = {}
    for failure in group:
        if told := _SIZES.search(failure.message):
            if int(told[1]) != failure.rank.rank:
                return {}
            models[failure.rank.rank] = f"has {told[3]} [{told[4]}] in params[{told[2]}]"
    others = {rank.rank for rank in evidence.ranks} - models.keys()
    return {**models, **dict.fromkeys(others, "has others")} if models and 0 in others else {}
