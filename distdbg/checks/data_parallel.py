"""torch.nn.DataParallel in a job that has a process for each GPU."""

from __future__ import annotations

from collections.abc import Iterator

from distdbg.checks._profiles import cost, found, same_places
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="data-parallel",
        severity="warning",
        title="DataParallel is used, one process for several GPUs",
        meaning="DataParallel copies the model to each GPU in each forward, and drives all of them from one Python "
        "thread. Between ranks it does nothing: each trains a model of its own, on its own share of the data.",
        how_seen="In a profile, DataParallel's own forward in most of the steps, by the line that calls the model.",
        remedy="Wrap the model in DistributedDataParallel(model, device_ids=[local_rank]) instead, with one process a "
        "GPU.",
        source="https://pytorch.org/tutorials/intermediate/ddp_tutorial.html#comparison-between-dataparallel-and-distributeddataparallel",
    ),
)


def check(evidence: RunEvidence) -> Iterator[Finding]:
    ranks = {p.rank for p in evidence.profiles if p.rank is not None} | {r.rank for r in evidence.ranks}
    alone = f": each of the {len(ranks)} ranks trains a model of its own" if len(ranks) > 1 else ""
    for group in same_places(evidence, "parallel"):
        profile, dear = group[0]
        yield found(
            evidence,
            DOCS[0],
            [seen.profile for seen in group],
            summary=f"{dear.where} calls the model through DataParallel{alone}",
            cause=f"Its forward, with the model's own in it, is {cost(profile, dear.us)}. No gradient is averaged "
            "between ranks by it.",
            quote=f"DataParallel.forward: {dear.us / 1000:.2f} ms a step",
            confidence="certain",
        )
