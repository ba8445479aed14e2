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
