"""Plant a fault in a copy of a client, launch it, and judge the report against the truth that was written before.

One injection is client x fault x place x rank x hit x world size. The copy differs from the client by the lines of the
fault alone: a condition on the rank and on how often it came there.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from importlib.util import find_spec
from pathlib import Path

from tests.conftest import Finished, environment_in, processes_of
from tests.inject.faults import FAULTS, Fault

_HERE = Path(__file__).parent
#: Clients that start two ranks themselves, below --no-python, and what they need: too large for the tests' extra.
_DRIVERS = {"ray_train": "ray"}
CLIENTS = sorted(
    client
    for client in (*_HERE.glob("clients/*.py"), *_HERE.parent.glob("programs/clients/*.py"))
    if find_spec(_DRIVERS.get(client.stem, "torch"))
)
_PLACE = re.compile(r"^(?P<indent> *)# here: (?P<place>\w+)$", re.M)
#: What a run needs is below the docstring: names that no client has.
_PRELUDE = "import itertools as _itertools, os, pathlib as _pathlib, torch; _hits = _itertools.count(1)\n"
#: how often the rank passes before the fault; places that come only once have it at once
_LATER, _ONCE = 3, frozenset({"start", "save", "evaluation"})
#: Of those that end by themselves a longer one, as a slow machine must not call them hung.
_HANG_TIMEOUT_S, _ENDS_S = 6, 60
#: Without heartbeats a driver's slow start is known by its CPU time and bytes alone.
_DRIVERS_TIMEOUT_S = 20
_DRIVERS_END_S = 30


class Verdict(Enum):
    RIGHT = "right"
    OTHER_ID = "right culprit, other id"
    UNDECIDED = "undecided, the culprit is among those named"
    SILENT = "nothing said"
    WRONG = "wrong culprit"


@dataclass(frozen=True, slots=True)
class Injection:
    """`rank` is None for a line that every rank runs: no fault, then."""

    client: Path
    fault: Fault
    place: str
    rank: int | None
    world: int

    def __str__(self) -> str:
        return f"{self.client.stem}: {self.fault.name} at {self.place}, rank {self.rank} of {self.world}"

    @property
    def drives(self) -> bool:
        return self.client.stem in _DRIVERS

    @property
    def codes(self) -> tuple[int, ...]:
        """The exit codes of ranks that a driver has started are its own affair."""
        return (1,) if self.drives and not self.fault.hangs else self.fault.codes

    @property
    def timeout_s(self) -> int:
        if not self.fault.hangs:
            return _ENDS_S
        return _DRIVERS_TIMEOUT_S if self.drives else _HANG_TIMEOUT_S

    @property
    def command(self) -> list[str]:
        """All but the script."""
        nodes, each = (2, 2) if self.world == 4 else (1, 1 if self.drives else self.world)
        words = ["launch", "--nodes", str(nodes), "--nproc-per-node", str(each), "--hang-timeout", str(self.timeout_s)]
        words += ["--on-hang", "kill", "--grace", "1"]
        if self.drives:  # one rank that computes would be excused for 20 minutes: nothing says that all have begun
            words += ["--startup-timeout", str(self.timeout_s), "--no-python", sys.executable]
        return words

    @property
    def hit(self) -> int:
        return 1 if self.place in _ONCE else _LATER

    def write(self, folder: Path) -> tuple[Path, int]:
        """(the copy with the fault, the line of the fault)."""
        source = self.client.read_text()
        found = next(m for m in _PLACE.finditer(source) if m["place"] == self.place)
        inner = found["indent"] + "    "
        mine = "" if self.rank is None else f'os.environ["RANK"] == "{self.rank}" and '
        condition = f"if {mine}next(_hits) == {self.hit}:"
        note = '_pathlib.Path(os.environ["PLANTED"]).touch()'
        planted = f"{found['indent']}{condition}\n{inner}{note}\n{inner}{self.fault.line}"
        source = source[: found.start()] + planted + source[found.end() :]
        docstring, text = source.split('"""\n', 1)
        copy = folder / self.client.name
        copy.write_text(f'{docstring}"""\n{_PRELUDE}{text}')
        lines = copy.read_text().splitlines()
        return copy, lines.index(f"{inner}{self.fault.line}") + 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """`seconds` from the fault to the launch's end, the hang timeout left out; None where the fault was never met."""

    injection: Injection
    verdict: Verdict
    line: bool
    code: bool
    orphans: int
    seconds: float | None
    said: str

    @property
    def good(self) -> bool:
        """All as it should be; of two sides that nothing tells apart, both may be named."""
        decided = self.verdict is Verdict.RIGHT or (self.verdict is Verdict.UNDECIDED and self.injection.fault.ties)
        return decided and self.line and self.code and not self.orphans


def places(client: Path) -> list[str]:
    return [m["place"] for m in _PLACE.finditer(client.read_text())]


def all_injections() -> Iterator[Injection]:
    """Every client, place and fault that go together, in turn on each rank of two, and of three or four ranks."""
    turns = itertools.cycle(((2, 1), (4, 2), (2, 0), (3, 1), (2, 1), (4, 3)))
    for client in CLIENTS:
        for fault, place in itertools.product(FAULTS, places(client)):
            if place in fault.places:
                world, rank = next(turns)
                if client.stem in _DRIVERS:
                    world, rank = 2, rank % 2
                if place == "save" and client.stem == "nanogpt_like":
                    rank = 0  # no other rank saves
                yield Injection(client, fault, place, rank, world)


def sample(most: int, seed: int = 0) -> list[Injection]:
    """As many of them, each fault about equally often, half of them with two ranks, one with a driver, which is slow,
    and more where all others are taken; the same for the same seed."""
    left = list(all_injections())
    random.Random(seed).shuffle(left)
    left.sort(key=lambda injection: injection.drives)
    taken: list[Injection] = []
    while left and len(taken) < most:
        for fault in FAULTS:
            two = sum(i.world == 2 for i in taken) * 2 <= len(taken)
            mine = [i for i in left if i.fault is fault]
            one = next((i for i in mine if (i.world == 2) == two), mine[0] if mine else None)
            if one is not None and len(taken) < most:
                taken.append(one)
                left.remove(one)
    if slow := next((i for i in left if i.drives and i.fault is taken[-1].fault and not taken[-1].drives), None):
        taken[-1] = slow
    return taken


def run(injection: Injection, folder: Path) -> Outcome:
    copy, line = injection.write(folder)
    planted = folder / "planted"
    done = subprocess.run(
        [sys.executable, "-m", "distdbg", *injection.command, str(copy), str(folder)],
        cwd=folder,
        env={**environment_in(folder), "PLANTED": str(planted)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=400,
        check=False,
    )
    ended = time.time()
    finished = Finished(done.returncode, os.fsdecode(done.stdout), os.fsdecode(done.stderr), folder)
    met = planted.stat().st_mtime if planted.exists() else None
    seconds = None if met is None else ended - met - (injection.timeout_s if injection.fault.hangs else 0)
    report = json.loads(finished.run.report_json.read_text())
    verdict, has_line, said = judge(injection, f"{copy.name}:{line}", report)
    code, orphans = done.returncode in injection.codes, _left_behind(injection, folder)
    has_line = has_line or not injection.fault.leaves_its_line
    return Outcome(injection, verdict, has_line, code, orphans, seconds, f"exit {done.returncode}: {said}")


def _left_behind(injection: Injection, folder: Path) -> int:
    """Ray's workers end by themselves, seconds after their raylet."""
    until = time.monotonic() + (_DRIVERS_END_S if injection.drives else 0)
    while (left := len(processes_of(folder))) and time.monotonic() < until:
        time.sleep(0.2)
    return left


def judge(injection: Injection, where: str, report: dict) -> tuple[Verdict, bool, str]:
    """(verdict, whether the fault's line is named, what the report said)."""
    roots = [f for f in report["findings"] if f["explained_by"] is None and f["severity"] == "error"]
    unknown = [f"{u['what']}: {u['because']}" for u in report["unknown"]]
    said = " | ".join([*(f"{f['id']} {f['ranks']} {f['summary']}" for f in roots), *unknown])
    if not roots:
        return (Verdict.UNDECIDED if where in said else Verdict.SILENT), where in said, said
    first = roots[0]
    text = first["summary"] + first["cause"] + "".join(e["quote"] or "" for e in first["evidence"])
    named = where in text
    if first["ranks"] == [injection.rank] and len(roots) == 1:
        return (Verdict.RIGHT if first["id"] in injection.fault.ids else Verdict.OTHER_ID), named, said
    everyone = {rank for root in roots for rank in root["ranks"]}
    if injection.rank not in everyone:
        return Verdict.WRONG, named, said
    return Verdict.UNDECIDED, named, said
