"""Mutated inputs of every format: readers raise their documented errors only, within bounds of memory and time.

The corpus, what was found before, comes first. `make fuzz` runs longer and keeps what it finds in the corpus.
"""

from __future__ import annotations

import os
import random
import resource
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.formats import FORMATS, Format, remove_folder

CORPUS = Path(__file__).parent / "corpus"
#: Seconds for all formats together; `make fuzz` sets more.
LONG = "DISTDBG_FUZZ_SECONDS" in os.environ
BUDGET_S = float(os.environ.get("DISTDBG_FUZZ_SECONDS", "60"))
INPUTS = 1000
#: Of one input.
MOST_MEMORY = 1 << 30
MOST_S = 5.0


class TookTooLong(BaseException):
    pass


@pytest.fixture(scope="module", autouse=True)
def _no_folder_left() -> Iterator[None]:
    yield
    remove_folder()


@contextmanager
def bounds() -> Iterator[None]:
    """MemoryError or TookTooLong where an input takes more."""

    def late(*_: object) -> None:
        raise TookTooLong

    own = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    before = signal.signal(signal.SIGALRM, late)
    resource.setrlimit(resource.RLIMIT_AS, (own + MOST_MEMORY, hard))
    signal.setitimer(signal.ITIMER_REAL, MOST_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.signal(signal.SIGALRM, before)


def judge(fmt: Format, data: bytes) -> None:
    with bounds():
        try:
            fmt.read(data)
        except fmt.allowed:
            pass


def keep(name: str, data: bytes, error: BaseException) -> None:
    """Hypothesis tries the smallest input last: it is what stays."""
    frames = error.__traceback__
    while frames is not None and frames.tb_next is not None:
        frames = frames.tb_next
    line = f"{Path(frames.tb_frame.f_code.co_filename).stem}-{frames.tb_lineno}" if frames else ""
    path = CORPUS / name / f"{type(error).__name__}-{line}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


@pytest.mark.parametrize("path", sorted(p for p in CORPUS.glob("*/*")), ids=lambda p: f"{p.parent.name}-{p.name}")
def test_what_was_found_before(path):
    judge(FORMATS[path.parent.name], path.read_bytes())


@pytest.mark.parametrize("name", FORMATS)
def test_seeds_are_read(name):
    """A reader that refuses everything would pass every other test."""
    for seed in FORMATS[name].seeds():
        with bounds():
            FORMATS[name].read(seed)


@pytest.mark.parametrize("name", FORMATS)
def test_mutated_inputs(name):
    fmt = FORMATS[name]
    seeds = fmt.seeds()
    failed: list[int] = []
    until = time.monotonic() + BUDGET_S * fmt.weight / sum(f.weight for f in FORMATS.values())

    @settings(
        max_examples=INPUTS, deadline=None, database=None, derandomize=not LONG, suppress_health_check=list(HealthCheck)
    )
    @given(st.integers(0, 2**64 - 1))
    def fuzz(number: int) -> None:
        if time.monotonic() > until and not failed:
            return
        rng = random.Random(number)
        data = fmt.mutate(rng, rng.choice(seeds))
        try:
            judge(fmt, data)
        except BaseException as error:
            failed.append(number)
            if LONG:
                keep(name, data, error)
            raise

    fuzz()
    while LONG and time.monotonic() < until:
        fuzz()
