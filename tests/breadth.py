"""Choose a sample of the cases of tests whose cases differ in breadth and not in kind.

`@pytest.mark.breadth(by=KEY)` on a parametrized test: of the cases for which KEY gives the same, the first one is run.
`--all` (`make test-all`) runs every case, as does any choice of cases: `-k`, or a node id with `::`.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from pathlib import Path

import pytest

_VERDICT = re.compile(r"^(?:Verdict|Guard): ([\w|-]+)", re.MULTILINE)


def verdict_of(program: Path) -> Hashable:
    """The finding that a program promises: each finding is found at least once."""
    return tuple(_VERDICT.findall(program.read_text()))


def guard_and_kind(program: Path) -> Hashable:
    """Of each guard a program with the mistake and one that looks like it."""
    return program.parent.name, program.stem.partition("_")[0]


def keep_sample(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the cases that the sample does not have."""
    chosen = config.getoption("all") or config.option.keyword or any("::" in word for word in config.args)
    seen: set[Hashable] = set()
    left_out = []
    for item in items if not chosen else ():
        marker = item.get_closest_marker("breadth")
        if marker is None or not isinstance(item, pytest.Function):
            continue
        (value,) = item.callspec.params.values()
        key = item.path, item.function.__name__, marker.kwargs["by"](value)
        if key in seen:
            left_out.append(item)
        seen.add(key)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        dropped = set(map(id, left_out))
        items[:] = [item for item in items if id(item) not in dropped]
