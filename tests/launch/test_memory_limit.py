"""A rank that runs into its control group's limit, as in a container: the kernel kills it, and that is what is said."""

import contextlib
import json
import sys
import uuid
from pathlib import Path

import pytest

from tests.conftest import run_command

pytestmark = pytest.mark.slow

GROWS = """
import torch.distributed as dist
dist.init_process_group("gloo")
kept = []
while True:
    if dist.get_rank() == 1:
        kept.append(b"x" * (20 << 20))
    dist.barrier()
"""
_VERSION_1, _VERSION_2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")


@pytest.fixture
def limited():
    """A control group of this test's own, of 1,200 MiB: its file of pids."""
    old = (_VERSION_1 / "memory.limit_in_bytes").exists()
    group = (_VERSION_1 if old else _VERSION_2) / f"distdbg-{uuid.uuid4().hex[:8]}"
    limit = group / ("memory.limit_in_bytes" if old else "memory.max")
    try:
        group.mkdir()
        if not limit.exists():
            raise PermissionError("no memory controller here")
        limit.write_text(str(1200 << 20))
    except OSError as error:
        with contextlib.suppress(OSError):
            group.rmdir()
        pytest.skip(f"not possible here: no control group with a limit: {error}")
    yield group / "cgroup.procs"
    with contextlib.suppress(OSError):  # it is empty soon
        group.rmdir()


@pytest.mark.parametrize("container", [(), ("unshare", "--pid", "--fork", "--mount-proc")], ids=["host", "container"])
def test_the_rank_that_was_killed_at_the_limit_is_named(tmp_path, limited, container):
    (tmp_path / "train.py").write_text(GROWS)
    within = ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(limited), *container, sys.executable]
    done = run_command([*within, "-m", "distdbg", "launch", "--nproc-per-node", "2", "train.py"], tmp_path)
    assert done.code == 137, done
    first = json.loads(done.run.report_json.read_text())["findings"][0]
    assert first["confidence"] == ("likely" if container else "certain"), first
    assert (first["id"], first["ranks"]) == ("host-oom", [1]), first
    assert "1.17 GiB" in first["cause"], first
