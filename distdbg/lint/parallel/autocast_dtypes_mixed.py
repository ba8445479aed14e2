"""Autocast to one sixteen-bit type inside autocast to the other."""

from __future__ import annotations

from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script import autocast as _autocast

#: without these words there is nothing to check
NEEDS = ({"autocast"},)


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
            site,
            f"this computes in {types[block]} inside of autocast to {types[outer]}",
            related=((regions[outer], f"autocast to {types[outer]}"),),
        )
