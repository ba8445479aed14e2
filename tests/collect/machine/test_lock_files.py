"""A lock file: who holds it, by having it open or by a lock of the kernel's, and how old it is."""

import fcntl
import os

import pytest

from distdbg.collect.machine.lock_files import look_at_lock


def test_who_has_it_open_holds_it(tmp_path):
    """torch's FileBaton keeps its file open until it removes it."""
    path = tmp_path / "lock"
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL)
    assert look_at_lock(path, but=0)["holders"][0].startswith(f"pid {os.getpid()} (")
    assert look_at_lock(path, but=0)["locked_by"] == []
    assert look_at_lock(path, but=os.getpid())["holders"] == [], "a rank does not wait for itself"
    os.close(descriptor)
    assert look_at_lock(path, but=0)["holders"] == []


def test_a_lock_of_the_kernel_names_its_owner_and_not_who_has_the_file_open(tmp_path):
    path = tmp_path / "lock"
    with path.open("w") as file, path.open():
        fcntl.flock(file, fcntl.LOCK_EX)
        seen = look_at_lock(path, but=0)
    assert (len(seen["holders"]), seen["locked_by"]) == (1, [os.getpid()])


@pytest.mark.parametrize("age_s", [0.0, 7200.0])
def test_its_age(tmp_path, age_s):
    path = tmp_path / "lock"
    path.touch()
    changed = path.stat().st_mtime - age_s
    os.utime(path, (changed, changed))
    assert age_s <= look_at_lock(path, but=0)["age_s"] < age_s + 60


def test_one_that_is_gone_has_no_age(tmp_path):
    assert look_at_lock(tmp_path / "lock", but=0) == {"path": str(tmp_path / "lock"), "age_s": None, "holders": []}
