"""Autocast to one sixteen-bit type inside autocast to the other."""

from __future__ import annotations

from collections.abc import Iterator

from distdbg.lint import _autocast
from distdbg.lint._rule import Context, Hit
from distdbg.model import FindingDoc

DOCS = (
    FindingDoc(
        id="autocast-dtypes-mixed",
        severity="info",
        title="autocast to float16 and to bfloat16, one inside the other",
        meaning="The inner region computes in another type than the outer one: what passes between them is rounded "
        "twice, and what bfloat16 can hold may be infinite in float16. The inner one is often a default that was "
        "forgotten: autocast without a dtype means float16 on a GPU.",
        how_seen="Two regions whose dtypes are certain, one of which is entered inside the other, in one function or "
        "through calls.",
        remedy="Give both the same dtype, or leave the inner one out.",
        source="https://docs.pytorch.org/docs/stable/amp.html#torch.autocast",
    ),
)


def check(context: Context) -> Iterator[Hit]:
    regions = dict(_autocast.regions(context))
    types = {block: _autocast.dtype(context, site) for block, site in regions.items()}
    if len(set(types.values()) - {""}) < 2:
        return
    for block, site in regions.items():
        outer = next((o for o in _autocast.around(context, block) if o is not block and o in regions), None)
        if outer is None or not types[block] or not types[outer] or types[outer] == types[block]:
            continue
        yield Hit(
            "autocast-dtypes-mixed",
            "info",
            "likely",
            site,
            f"this computes in {types[block]} inside of autocast to {types[outer]}",
            related=((regions[outer], f"autocast to {types[outer]}"),),
        )
