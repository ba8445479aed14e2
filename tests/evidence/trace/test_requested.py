"""What a launch's ranks gave of the profiles that they were asked for."""

from distdbg.evidence.own_failures import missing_profiles
from tests.made_run import MadeRun

VARIABLES = [{"name": "DISTDBG_PROFILE", "value": "20:25"}, {"name": "DISTDBG_PROFILE_RANKS", "value": "0-2"}]


def unknowns_of(tmp_path, variables=VARIABLES, there=("steps-20-25.json.gz",)):
    made = MadeRun(tmp_path, ranks=4, nodes=2)
    files = ["steps-20-25.json.gz"]
    made.event(0, "profile", t=5, rank=0, id=None, files=files, missing="")
    made.event(0, "profile", t=5, rank=1, id=None, files=[], because="the script ended after 9 steps, before step 20")
    made.event(1, "profile", t=5, rank=2, id="asked later", files=files)
    for rank in range(4):
        made.exits(rank, 0)
    evidence = made.evidence()
    found = missing_profiles({"environment": variables}, evidence.nodes, evidence.ranks, lambda _: set(there))
    return [(one.what, one.because) for one in found]


def test_ranks_that_gave_none_are_named_with_the_reason(tmp_path):
    assert unknowns_of(tmp_path) == [
        ("profile of steps 20:25, rank 1", "the script ended after 9 steps, before step 20"),
        ("profile of steps 20:25, rank 2", "it ended before its profile was written"),
    ]


def test_nobody_is_missed_who_was_not_asked(tmp_path):
    assert unknowns_of(tmp_path, variables=[]) == []


def test_a_file_that_never_came_is_missed(tmp_path):
    assert unknowns_of(tmp_path, there=())[0] == (
        "profile of steps 20:25, rank 0",
        "its file did not come into the run directory: was the disk full?",
    )
