"""Which two snapshots of a run are compared, and what is said where it has no such two."""

import pytest

from distdbg.collect.runs.run_snapshots import two_snapshots
from distdbg.errors import NothingToAnalyse, UsageError


@pytest.fixture
def run(tmp_path):
    names = {0: ("step-step000004-001", "step-step000006-002", "asked-step000006-003", "step-step000008-004"),
             2: ("step-step000004-001", "oom-step000006-002"), 5: ("step-step000009-001",)}  # fmt: skip
    for rank, stems in names.items():
        folder = tmp_path / "attempts" / "1" / "ranks" / f"{rank:05d}" / "memory"
        folder.mkdir(parents=True)
        for stem in stems:
            (folder / f"{stem}.pickle.gz").touch()
            (folder / f"{stem}.host.json.gz").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("ranks", "steps", "wanted"),
    [
        ([0, 2], [], [(0, "asked-step000006-003"), (2, "oom-step000006-002")]),  # the newest step that both have
        ([0, 5], [], [(0, "step-step000008-004"), (5, "step-step000009-001")]),  # none: the newest of each
        ([], [4, 8], [(0, "step-step000004-001"), (0, "step-step000008-004")]),  # the first rank that has both
        ([2], [4, 6], [(2, "step-step000004-001"), (2, "oom-step000006-002")]),
        ([0, 2], [4], [(0, "step-step000004-001"), (2, "step-step000004-001")]),
        ([0, 2], [8, 4], [(0, "step-step000008-004"), (2, "step-step000004-001")]),
    ],
)
def test_ranks_and_steps_choose_two(run, ranks, steps, wanted):
    found = [(int(path.parts[-3]), path.name.partition(".")[0]) for path in two_snapshots(run, ranks, steps)]
    assert found == wanted


@pytest.mark.parametrize(
    ("ranks", "steps", "said"),
    [
        ([], [], "name 1"), ([3], [], "name 1"), ([0], [4], "name 1"), ([0, 1, 2], [], "name 3"),
        ([0, 1], [], "rank 1 has no snapshot"), ([], [4, 5], "rank 0 has no snapshot of step 5"),
    ],
)  # fmt: skip
def test_what_does_not_choose_two_is_said(run, ranks, steps, said):
    with pytest.raises(UsageError, match=said) as caught:
        two_snapshots(run, ranks, steps)
    assert caught.value.remedy


def test_a_run_without_any(tmp_path):
    with pytest.raises(NothingToAnalyse, match="no memory snapshot"):
        two_snapshots(tmp_path, [0, 1], [])
