"""Which ranks stand for a job, by the groups that it forms."""

import json

import pytest

from distdbg.rehearse.roles import FormedGroup, read_groups, representatives


def mesh(*dimensions):
    """Groups of a device mesh: (name, size), the outermost dimension first."""
    size, found, stride = 1, [], 1
    for _, length in dimensions:
        size *= length
    for name, length in reversed(dimensions):
        firsts = [rank for rank in range(size) if rank // stride % length == 0]
        found += [FormedGroup(name, tuple(first + n * stride for n in range(length))) for first in firsts]
        stride *= length
    return found, size


@pytest.mark.parametrize(
    ("dimensions", "wanted"),
    [
        ([("mesh_dp", 64)], (0, 63)),
        ([("mesh_dp", 8), ("mesh_tp", 8)], (0, 7, 56, 63)),
        ([("mesh_pp", 4), ("mesh_dp", 16)], (0, 15, 16, 31, 32, 47, 48, 63)),
        ([("mesh_pp", 2), ("mesh_dp", 128), ("mesh_tp", 4)], (0, 3, 508, 511, 512, 515, 1020, 1023)),
    ],
)
def test_the_first_and_last_of_each_group_and_all_stages(dimensions, wanted):
    groups, size = mesh(*dimensions)
    assert representatives(groups, size, 16) == wanted


def test_of_too_many_those_nearest_to_rank_0_are_kept():
    groups, size = mesh(("mesh_pp", 8), ("mesh_dp", 4), ("mesh_tp", 4))
    found = representatives(groups, size, 10)
    assert len(found) == 10 and {stage * 16 for stage in range(8)} < set(found), "all stages first"


def test_a_job_without_groups_of_its_own():
    assert representatives((), 1024, 16) == (0, 1023)
    assert representatives((), 1, 16) == (0,)


def test_a_pipeline_is_known_by_its_name():
    names = {"mesh_pp": True, "PIPELINE_MODEL_PARALLEL_GROUP": True, "mesh_tp": False, "undefined": False, "app": False}
    assert {name: FormedGroup(name, ()).is_pipeline for name in names} == names


@pytest.mark.parametrize("named", [True, False])
def test_a_pipeline_is_known_by_what_rank_0_sends(named):
    """Whatever its groups are called: those of other ranks are like it."""
    groups, size = mesh(("stage" if named else "undefined", 4), ("dp", 8))
    assert representatives(groups, size, 16) == (0, 7, 24, 31), "first and last alone"
    sent = FormedGroup("", (0, 8, 16, 24), transfers=True)
    assert representatives([*groups, sent], size, 16) == (0, 7, 8, 15, 16, 23, 24, 31)


def test_groups_are_read_once():
    line = json.dumps({"name": "mesh_tp", "ranks": [1, 0]})
    sent = json.dumps({"name": "", "ranks": [0, 4], "transfers": True})
    found = read_groups(f"{line}\n{line}\n{sent}\n")
    assert found == (FormedGroup("mesh_tp", (0, 1)), FormedGroup("", (0, 4), transfers=True))
