"""What tests ask for: `bed` (two hosts), `slurm_bed` (a head and two nodes); each made once for a file."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.bed import Bed
from tests.cluster.slurm import Slurm, missing


def need_bed(*, slurm: bool = False) -> None:
    """Skip where no bed can be made, and say why."""
    if os.geteuid() != 0:
        pytest.skip("the test bed needs root: namespaces of its own")
    if shutil.which("ip", path="/usr/sbin:/sbin:/usr/bin:/bin") is None:
        pytest.skip("Debian's iproute2 is missing: `make bed` installs it")
    if slurm and (lacking := missing()):
        pytest.skip(lacking)


def own_folder() -> Path:
    """A name that is short (sockets) and not yet made."""
    parent = Path(tempfile.mkdtemp(prefix="bed-", dir="/tmp"))
    parent.rmdir()
    return parent


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    need_bed()
    with Bed(own_folder(), nodes=2, tcp_retries=4) as made:
        yield made


@pytest.fixture(scope="module")
def slurm_bed() -> Iterator[Bed]:
    need_bed(slurm=True)
    with Bed(own_folder(), nodes=2, slurm=Slurm()) as made:
        yield made
