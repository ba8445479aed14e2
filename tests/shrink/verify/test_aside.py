"""Checks in a process of their own: their answer comes back, and the process never outlives its reader."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("torch")

from distdbg.shrink.verify.aside import ChecksAside

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a process is copied on Linux only")


def test_the_answer_of_another_process() -> None:
    found = ChecksAside(lambda: {"kinds": str(os.getpid())}).result()
    assert int(found["kinds"]) != os.getpid()


def test_checks_are_made_here_where_the_other_process_died() -> None:
    here = os.getpid()

    def checks() -> dict[str, str]:
        if os.getpid() != here:
            os._exit(1)
        return {"kinds": "pass"}

    assert ChecksAside(checks).result() == {"kinds": "pass"}


def test_it_ends_with_the_process_that_asked() -> None:
    code = (
        "import time\n"
        "from distdbg.shrink.verify.aside import ChecksAside\n"
        "aside = ChecksAside(lambda: time.sleep(3600) or {})\n"
        "print('begun', flush=True)\n"
        "aside.result()\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"begun\n"
    process.kill()
    assert process.stdout.read() == b""  # both processes had it open
    process.wait()
    process.stdout.close()
