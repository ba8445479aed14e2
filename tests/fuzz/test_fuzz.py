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

from distdbg.cli import run
from distdbg.errors import EXIT_CODES
from tests.fuzz.formats import FORMATS, Format, remove_folder

CORPUS = Path(__file__).parent / "corpus"
#: Seconds for all formats together; `make fuzz` sets more.
LONG = "DISTDBG_FUZZ_SECONDS" in os.environ
BUDGET_S = float(os.environ.get("DISTDBG_FUZZ_SECONDS", "60"))
INPUTS = 1000
#: Of that, what commands get; what is given to which.
COMMANDS_SHARE = 0.25
COMMANDS = {
    "recorder-pickle": (["explain"], "fr_0"),
    "recorder-json": (["explain"], "fr_0.json"),
    "pyspy-text": (["explain"], "rank0.txt"),
    "log": (["explain"], "torchrun.log"),
    "trace": (["profile"], "rank0.json"),
    "snapshot": (["memory", "analyze"], "rank0.pickle"),
    "script": (["lint"], "a.py"),
}
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


def place_of(error: BaseException) -> str:
    """The error and the line that raised it: two inputs with the same one found the same mistake."""
    frames = error.__traceback__
    while frames is not None and frames.tb_next is not None:
        frames = frames.tb_next
    line = f"{Path(frames.tb_frame.f_code.co_filename).stem}-{frames.tb_lineno}" if frames else ""
    return f"{type(error).__name__}-{line}"


def keep(name: str, place: str, data: bytes) -> None:
    path = CORPUS / name / place
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


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_mutated_inputs(name):
    """`make fuzz` goes on after a failure: it keeps the smallest input of each."""
    fmt = FORMATS[name]
    seeds = fmt.seeds()
    rng = random.Random() if LONG else random.Random(name)
    smallest: dict[str, bytes] = {}
    first: BaseException | None = None
    until = time.monotonic() + BUDGET_S * (1 - COMMANDS_SHARE) * fmt.weight / sum(f.weight for f in FORMATS.values())
    count = 0
    while count == 0 or (time.monotonic() < until and (LONG or count < INPUTS)):
        count += 1
        data = fmt.mutate(rng, rng.choice(seeds))
        try:
            judge(fmt, data)
        except (Exception, TookTooLong) as error:
            first = first or error
            if not LONG:
                break
            place = place_of(error)
            if place not in smallest or len(data) < len(smallest[place]):
                smallest[place] = data
                keep(name, place, data)
    if first is not None:
        raise first


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_commands_end_with_a_documented_code(name, tmp_path, capsys, monkeypatch):
    """Mutated files as a person gives them to a command: sentences, no traceback."""
    words, file = COMMANDS[name]
    fmt = FORMATS[name]
    monkeypatch.chdir(tmp_path)
    rng = random.Random(name)
    until = time.monotonic() + BUDGET_S * COMMANDS_SHARE / len(COMMANDS)
    count = 0
    while count == 0 or time.monotonic() < until:
        count += 1
        Path(file).write_bytes(fmt.mutate(rng, rng.choice(fmt.seeds())))
        code = run([*words, file, *rng.choice(([], ["--json"]))])
        said = capsys.readouterr()
        assert code in EXIT_CODES, (code, said.err)
        assert "Traceback (most recent call last)" not in said.err
        assert len(said.err.splitlines()) <= 6, said.err
