"""What is collected of a rank that waits for a child or for a lock file, by what its stack says."""

import os
import subprocess

import pytest

from distdbg.launch.watch.surroundings import surroundings

TORCH = "/env/lib/python3.11/site-packages/torch"


def stack(*frames):
    """(file, function, {variable: repr}), innermost first."""
    return [
        {"filename": file, "name": name, "locals": [{"name": n, "repr": r} for n, r in values.items()]}
        for file, name, values in frames
    ]


def baton(folder):
    return stack(
        (f"{TORCH}/utils/file_baton.py", "FileBaton.wait", {}),
        (f"{TORCH}/utils/cpp_extension.py", "_jit_compile", {"build_directory": f'"{folder}"', "name": '"my_ops"'}),
        ("/home/me/train.py", "<module>", {}),
    )


def test_the_lock_file_of_an_extension_is_in_its_build_folder(tmp_path):
    (tmp_path / "lock").touch()
    found = surroundings(os.getpid(), baton(tmp_path), "clock_nanosleep")
    assert found["lock"]["path"] == str(tmp_path / "lock")
    assert found["lock"]["holders"] == []
    assert "below" not in found


def test_a_path_that_was_cut_short_is_not_looked_at():
    assert surroundings(os.getpid(), baton("/scratch/a-long-na..."), "clock_nanosleep") == {}


@pytest.mark.parametrize("variable", ["lock_filename", "canonical_path"])
def test_the_lock_file_of_the_package_filelock(tmp_path, variable):
    threads = stack(
        ("/env/lib/python3.11/site-packages/filelock/_api.py", "acquire", {variable: f'"{tmp_path}/data.lock"'}),
        ("/home/me/train.py", "<module>", {}),
    )
    assert surroundings(os.getpid(), threads, "clock_nanosleep")["lock"]["path"] == f"{tmp_path}/data.lock"


def test_the_processes_below_a_rank_that_waits_for_a_program():
    child = subprocess.Popen(["sleep", "60"])
    try:
        threads = stack(("/usr/lib/python3.11/subprocess.py", "Popen.communicate", {}), ("/home/me/t.py", "f", {}))
        for found in (surroundings(os.getpid(), threads, "read"), surroundings(os.getpid(), stack(), "wait4")):
            (below,) = [one for one in found["below"] if one["pid"] == child.pid]
            assert (below["parent"], below["name"]) == (os.getpid(), "sleep")
        assert surroundings(os.getpid(), stack(("/home/me/t.py", "f", {})), "futex") == {}
    finally:
        child.kill()
        child.wait()


def test_a_child_that_died_is_seen_by_a_rank_that_reads(tmp_path):
    died, lives = subprocess.Popen(["sh", "-c", "kill -9 $$"]), subprocess.Popen(["sleep", "60"])
    try:
        os.waitid(os.P_PID, died.pid, os.WEXITED | os.WNOWAIT)
        users = stack(("/home/me/t.py", "f", {}))
        (below,) = [
            one for one in surroundings(os.getpid(), users, "read")["below"] if one["pid"] in (died.pid, lives.pid)
        ]
        assert (below["pid"], below["state"], below["exit_code"]) == (died.pid, "Z", -9)
        assert surroundings(os.getpid(), users, "clock_nanosleep") == {}
    finally:
        lives.kill()
        lives.wait()
        died.wait()
