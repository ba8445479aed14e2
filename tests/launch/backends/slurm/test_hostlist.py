"""Slurm's bracket forms, and what scontrol makes of the same."""

import pytest

from distdbg.launch.backends.slurm.hostlist import expand


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("node1", ["node1"]),
        ("a,b", ["a", "b"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("n[1-2,7],login", ["n1", "n2", "n7", "login"]),
        ("rack[1-2]-n[1,3]", ["rack1-n1", "rack1-n3", "rack2-n1", "rack2-n3"]),
        ("gpu-a[01-02]-ib0", ["gpu-a01-ib0", "gpu-a02-ib0"]),
        ("", []),
    ],
)
def test_names(text, names):
    assert expand(text) == names


@pytest.mark.parametrize("text", ["n[1-", "n]1[", "n[[1]]", "n[x-y]", "n[3-1]", "n[1-99999999]", "n[]"])
def test_what_is_no_list_is_refused(text):
    with pytest.raises(ValueError, match=r"bracket|range"):
        expand(text)


@pytest.mark.slow
@pytest.mark.xdist_group("bed")
@pytest.mark.parametrize("text", ["n[1-3]", "rack[1-2]-n[1,3]", "n[08-11],x"])
def test_as_slurm_itself(slurm_bed, text):
    assert slurm_bed.run("head", "scontrol", "show", "hostnames", text).stdout.split() == expand(text)


@pytest.mark.timeout(10)
@pytest.mark.parametrize("text", ["n[1-999999][1-999999]", "n[1-600000],m[1-600000]", "n[" + "1-900000," * 50 + "1]",
                                  "n[1-" + "9" * 5000 + "]"])  # fmt: skip
def test_more_than_any_cluster_has(text):
    with pytest.raises(ValueError, match=r"names more than|is no range|is no list"):
        expand(text)
