import os

import pytest

from distdbg.collect.machine.cgroups import usable_cpus

ALLOWED = len(os.sched_getaffinity(0))


def machine(tmp_path, lines, files):
    (tmp_path / "self").write_text("".join(f"{line}\n" for line in lines))
    for name, text in files.items():
        path = tmp_path / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "cgroup", tmp_path / "self"


@pytest.mark.parametrize(
    ("lines", "files", "expected"),
    [
        (["0::/"], {}, ALLOWED),
        (["0::/job"], {"job/cpu.max": "50000 100000\n"}, 1),
        (["0::/job"], {"job/cpu.max": "max 100000\n"}, ALLOWED),
        (["0::/pod/job"], {"pod/job/cpu.max": "max 100000", "pod/cpu.max": "100000 100000"}, 1),
        (["0::/hidden/by/the/container"], {"cpu.max": "20000 100000"}, 1),
        (["4:cpu,cpuacct:/job"], {"cpu/job/cpu.cfs_quota_us": "90000", "cpu/job/cpu.cfs_period_us": "100000"}, 1),
        (["4:cpu:/"], {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, ALLOWED),
        (["0::/job"], {"job/cpu.max": "garbage"}, ALLOWED),
        (["0::/job"], {"job/cpu.max": "99999999 100000"}, ALLOWED),
        (["garbage"], {}, ALLOWED),
    ],
)
def test_quotas(tmp_path, lines, files, expected):
    assert usable_cpus(*machine(tmp_path, lines, files)) == expected


def test_no_cgroups_and_fewer_cpus(tmp_path):
    assert usable_cpus(tmp_path, tmp_path / "missing") == ALLOWED
    first = min(os.sched_getaffinity(0))
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {first})
    try:
        assert usable_cpus(tmp_path, tmp_path / "missing") == 1
    finally:
        os.sched_setaffinity(0, before)
