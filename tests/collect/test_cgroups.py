from distdbg.collect.cgroups import memory_counters


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
