"""Each rank gathers the whole model, which was sharded because it does not fit."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.checks._guards import by_place, facts, observe, place
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding, FindingDoc

_GIB = 1 << 30
DOCS = (
    FindingDoc(
        id="full-state-dict-gather",
        severity="warning",
        title="each rank gathers the whole state of a sharded model on its own device",
        meaning="A full state_dict without offloading puts the whole model on every rank's device, beside its shards "
        "and whatever else is there: saving is where such jobs run out of memory, and all ranks but one throw it away.",
        how_seen="A guard sees the options of get_model_state_dict and its like, or of FSDP1's state_dict: full, and "
        "not offloaded to the CPU; the model is sharded and has over 10 million parameters. Below 1 GiB it is a hint.",
        remedy="StateDictOptions(full_state_dict=True, cpu_offload=True), which only rank 0 keeps; FSDP1: "
        "FullStateDictConfig(offload_to_cpu=True, rank0_only=True). Or save shards: torch.distributed.checkpoint.",
        source="https://docs.pytorch.org/docs/stable/distributed.checkpoint.html#torch.distributed.checkpoint.state_dict.StateDictOptions",
    ),
)


def check(evidence: RunEvidence) -> Iterable[Finding]:
    for found in by_place(facts(evidence, "full-state-dict-gather")):
        fields = found[0].fields
        size = fields.get("bytes")
        size = size if isinstance(size, int) else 0
        told = f"{size / _GIB:.1f} GiB" if size >= _GIB else f"{size / (1 << 20):.0f} MiB"
        more = " The state of its optimizers comes on top of that." if fields.get("with_optimizer") else ""
        yield observe(
            evidence,
            DOCS[0],
            found,
            f"each rank gathers the whole model at {place(found[0])}: {told} on its own {fields.get('device')}",
            f"{fields.get('parameters')} parameters, and not offloaded.{more}",
            severity="warning" if size >= _GIB else "info",
        )
