"""Line budgets: how many lines each package has at most (`wc -l`), and how many it shall have. Python, and the C++ of
gpu_box.

A limit only falls: a change that removes lines lowers it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "distdbg"
GPU_BOX = ROOT / "gpu_box"
#: Lines that a limit may be above the real number: changes that land at the same time add or remove a few.
SLACK = 150
TOP_LEVEL = "top level"


@dataclass(frozen=True)
class Budget:
    """`limit`: the number of lines that is allowed today. `goal`: the number that the package shall have."""

    limit: int
    goal: int
    packages: tuple[str, ...] = ()


BUDGETS = {
    "launch": Budget(14_610, 12_500),
    "evidence": Budget(13_040, 11_000),
    "diagnosis": Budget(13_180, 10_000),
    "worker": Budget(11_530, 9_500),
    "shrink": Budget(10_367, 7_500),
    "lint": Budget(8_660, 6_000),
    "collect": Budget(7_480, 6_500),
    "report": Budget(4_770, 4_300),
    "cli": Budget(4_240, 3_700),
    "rehearse": Budget(1_140, 900),
    "others": Budget(6_980, 5_800, ("findings", "protocol", "rundir", "settings", TOP_LEVEL)),
    "gpu_box": Budget(1_580, 1_500),
    "gpu_box/native": Budget(2_460, 2_200),
}


def files_of(package: str) -> list[Path]:
    if package == "gpu_box":
        return sorted(GPU_BOX.glob("*.py"))
    if package == "gpu_box/native":
        return sorted(GPU_BOX.glob("native/*"))
    return sorted(PACKAGE.glob("*.py") if package == TOP_LEVEL else (PACKAGE / package).rglob("*.py"))


def count_lines(path: Path) -> int:
    return path.read_bytes().count(b"\n")


def packages_of(name: str) -> tuple[str, ...]:
    return BUDGETS[name].packages or (name,)


@pytest.mark.parametrize("name", BUDGETS)
def test_lines_are_within_budget(name: str) -> None:
    budget = BUDGETS[name]
    lines = sum(count_lines(path) for package in packages_of(name) for path in files_of(package))
    assert lines <= budget.limit, (
        f"{name} has {lines:,} lines, {lines - budget.limit:,} more than its limit of {budget.limit:,} (goal "
        f"{budget.goal:,}). Remove as many lines in the same package; do not raise the limit, and make no code denser."
    )
    allowed = max(budget.goal, lines + SLACK)
    assert budget.limit <= allowed, (
        f"{name} has {lines:,} lines, {budget.limit - lines:,} fewer than its limit of {budget.limit:,}. Lower its "
        f"limit in {Path(__file__).name} to about {max(budget.goal, lines + SLACK // 2):,}, so that they stay removed."
    )


def test_every_package_has_one_budget() -> None:
    listed = [package for name in BUDGETS for package in packages_of(name)]
    boxes = ["gpu_box", "gpu_box/native"]
    assert sorted(listed) == sorted([TOP_LEVEL, *boxes, *{path.parent.name for path in PACKAGE.glob("*/__init__.py")}])
