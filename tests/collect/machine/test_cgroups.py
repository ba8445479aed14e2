from distdbg.collect.machine.cgroups import memory_counters


def test_version_2(tmp_path):
    group = tmp_path / "job.slice"
    group.mkdir()
    (group / "memory.events").write_text("low 0\nhigh 0\nmax 12\noom 1\noom_kill 3\n")
    (group / "memory.max").write_text("1073741824\n")
    (group / "memory.current").write_text("1073000000\n")
    (tmp_path / "self").write_text("0::/job.slice\n")
    counters = memory_counters(tmp_path, tmp_path / "self")
    assert (counters["oom_kill"], counters["limit"], counters["current"]) == (3, 1073741824, 1073000000)


def test_version_1(tmp_path):
    group = tmp_path / "memory" / "job"
    group.mkdir(parents=True)
    (group / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
    (group / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    (group / "memory.usage_in_bytes").write_text("4096\n")
    (tmp_path / "self").write_text("5:cpu:/\n4:memory:/job\n0::/\n")
    counters = memory_counters(tmp_path, tmp_path / "self")
    assert (counters["oom_kill"], counters["limit"], counters["current"]) == (1, None, 4096)


def test_nothing_to_read_is_said(tmp_path):
    counters = memory_counters(tmp_path, tmp_path / "missing")
    assert counters["oom_kill"] is None
    assert "cannot be read" in counters["because"]


def test_a_container_sees_its_own_group_at_the_root(tmp_path):
    """Kubernetes: the namespace ends at the container, and its path says nothing of the host's."""
    (tmp_path / "memory.events").write_text("low 0\nmax 2\noom 1\noom_kill 1\noom_group_kill 0\n")
    (tmp_path / "memory.max").write_text("4294967296\n")
    for path in ("0::/\n", "0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-2.scope\n", "0::/../other.scope\n"):
        (tmp_path / "self").write_text(path)
        counters = memory_counters(tmp_path, tmp_path / "self")
        assert (counters["oom_kill"], counters["limit"]) == (1, 4 << 30)
        assert "because" not in counters


def test_a_container_without_memory_files_says_so(tmp_path):
    """cgroup v2 whose memory controller was not handed down; and a v1 kernel before 4.13 that counts no kills."""
    (tmp_path / "self").write_text("0::/\n")
    counters = memory_counters(tmp_path, tmp_path / "self")
    assert counters["oom_kill"] is None and "memory.events cannot be read" in counters["because"]
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\n")
    (tmp_path / "self").write_text("4:memory:/\n")
    counters = memory_counters(tmp_path, tmp_path / "self")
    assert counters["oom_kill"] is None and counters["because"].endswith("memory.oom_control has no oom_kill")


def slurm_step(tmp_path, **files):
    """A task's group of a step, as slurmd lays it out: {group: text} of each file. The mount and /proc/self/cgroup."""
    names = ["slurmstepd.scope", "job_7", "step_0", "user", "task_0"]
    (tmp_path / "self").write_text(f"0::/{'/'.join(names)}\n")
    folder = tmp_path
    for name in names:
        folder /= name
        folder.mkdir()
        for file, texts in files.items():
            (folder / file.replace("_", ".", 1)).write_text(texts.get(name, "max") + "\n")
    return tmp_path, tmp_path / "self"


def test_the_limit_stands_above_the_tasks_own_group(tmp_path):
    limits, used = {"job_7": str(64 << 30), "step_0": str(32 << 30)}, {"step_0": "900", "task_0": "700", "job_7": "999"}
    stat = {"step_0": "inactive_file 40\nactive_file 30"}
    where = slurm_step(tmp_path, memory_max=limits, memory_current=used, memory_stat=stat,
                       memory_events={"task_0": "oom_kill 1", "step_0": "oom_kill 5"})  # fmt: skip
    counters = memory_counters(*where)
    assert (counters["limit"], counters["current"], counters["reclaimable"]) == (32 << 30, 900, 70)
    assert counters["oom_kill"] == 1 and counters["path"].endswith("user/task_0")


def test_of_equal_limits_the_outermost_and_without_any_its_own_group(tmp_path):
    used = {"step_0": "900", "task_0": "700", "job_7": "999"}
    for name, limits, found in (
        ("equal", {"job_7": "4096", "step_0": "4096"}, (4096, 999)),
        ("own", {"task_0": "1000", "step_0": "4096"}, (1000, 700)),
        ("none", {}, (None, 700)),
    ):
        (tmp_path / name).mkdir()
        counters = memory_counters(*slurm_step(tmp_path / name, memory_max=limits, memory_current=used))
        assert (counters["limit"], counters["current"]) == found, name


def test_version_1_knows_a_limit_of_a_group_that_it_does_not_see(tmp_path):
    step = tmp_path / "memory" / "job_7" / "step_0"
    step.mkdir(parents=True)
    (tmp_path / "self").write_text("4:memory:/job_7/step_0\n")
    for folder, limit, used in ((step.parent, 8192, 5000), (step, 9223372036854771712, 4000)):
        (folder / "memory.limit_in_bytes").write_text(f"{limit}\n")
        (folder / "memory.usage_in_bytes").write_text(f"{used}\n")
    (step / "memory.stat").write_text("cache 1\nhierarchical_memory_limit 8192\n")
    (step.parent / "memory.stat").write_text("total_inactive_file 40\ntotal_active_file 30\nactive_file 5\n")
    counters = memory_counters(tmp_path, tmp_path / "self")
    assert (counters["limit"], counters["current"], counters["reclaimable"]) == (8192, 5000, 70)
    (step / "memory.stat").write_text("cache 1\nhierarchical_memory_limit 6000\n")
    counters = memory_counters(tmp_path, tmp_path / "self")
    assert (counters["limit"], counters["current"]) == (6000, None), "whose usage that is cannot be seen"
