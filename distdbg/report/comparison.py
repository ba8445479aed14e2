"""Compare two runs: outcome, findings, speed and memory, then possible reasons: versions, code, command, variables."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from difflib import SequenceMatcher
from statistics import median
from typing import Any, Literal

from distdbg.evidence.run import RankRecord, RunEvidence, StepTimes
from distdbg.model import Finding, Report, Unknown, grouped
from distdbg.wording import name_ranks

Part = Literal["outcome", "findings", "speed", "memory", "versions", "code", "command", "world", "environment"]
SCHEMA = "distdbg.diff/1"
#: So few windows of steps have no spread that could be trusted.
_FEWEST_WINDOWS = 5
#: A median that moved by less is no difference, however narrow the spread: two runs of one job differ by as much.
_LEAST_SPEED = 0.03
#: Of a process's memory so much comes and goes with the moment of the look.
_LEAST_MEMORY, _LEAST_BYTES = 0.05, 32 << 20
_NAMES = ("--run-dir", "--name")
_WORLD = ("on", "nodes", "nproc_per_node", "world_size", "hosts", "gpus")


@dataclass(frozen=True)
class RunDifference:
    """`a` and `b` are as they are shown: None where a run does not have it. `words` is a sentence without its dot."""

    part: Part
    what: str
    a: str | None
    b: str | None
    words: str


STEP_TIME = "step time"


@dataclass(frozen=True)
class Figure:
    """A figure of both runs, different or not; `spread` is low and high, where it has one."""

    what: str
    unit: str
    a: float | None
    b: float | None
    a_spread: tuple[float, float] | None = None
    b_spread: tuple[float, float] | None = None


@dataclass(frozen=True)
class Comparison:
    """`in_both` are the ids of findings that both runs have."""

    a: str
    b: str
    differences: tuple[RunDifference, ...]
    figures: tuple[Figure, ...]
    in_both: tuple[str, ...]
    new_errors: tuple[str, ...]
    unknown: tuple[Unknown, ...]


Side = tuple[RunEvidence, Report]


def compare(a: Side, b: Side) -> Comparison:
    """`b` is the newer run: findings that `a` does not have are new."""
    ids = [{f.id: f for f in reversed(report.findings)} for _, report in (a, b)]
    speed, why_not = _speed(a[0], b[0])
    memory, no_memory = _memory(a[0], b[0])
    variables, masked = _environment(a[0].job, b[0].job)
    differences = [
        *_outcome(a, b), *_findings(*ids), *_slower(speed), *_more(memory),
        *_keys("versions", _of(a[0].job, "versions"), _of(b[0].job, "versions")),
        *_code(a[0].job, b[0].job), *_command(a[0].job, b[0].job), *_world(a[0].job, b[0].job), *variables,
    ]  # fmt: skip
    new = [f.id for f in ids[1].values() if f.severity == "error" and f.id not in ids[0]]
    figures = [figure for figure in (speed, *memory) if figure is not None]
    return Comparison(a[0].run_id, b[0].run_id, tuple(differences), tuple(figures),
                      tuple(i for i in ids[1] if i in ids[0]), tuple(new),
                      (*why_not, *no_memory, *masked))  # fmt: skip


def as_json(found: Comparison) -> dict[str, Any]:
    """`distdbg.diff/1`."""
    return {
        "schema": SCHEMA,
        "a": found.a,
        "b": found.b,
        "differences": [asdict(difference) for difference in found.differences],
        "figures": [asdict(figure) for figure in found.figures],
        "findings_in_both": list(found.in_both),
        "new_errors": list(found.new_errors),
        "unknown": [{"what": u.what, "because": u.because} for u in found.unknown],
    }


# -- how they went ------------------------------------------------------------------------------------------------


def _outcome(a: Side, b: Side) -> Iterable[RunDifference]:
    ended, other = (
        (report.outcome or "unknown") + ("" if report.exit_code is None else f" with exit code {report.exit_code}")
        for _, report in (a, b)
    )
    if ended != other:
        yield RunDifference("outcome", "outcome", ended, other, f"A {ended}, B {other}")
    codes = [_codes(evidence.ranks) for evidence, _ in (a, b)]
    if codes[0] != codes[1] and len(a[0].ranks) == len(b[0].ranks):
        yield RunDifference(
            "outcome", "exit codes", codes[0], codes[1], f"exit codes of the ranks: A {codes[0]}, B {codes[1]}"
        )


def _codes(ranks: Iterable[RankRecord]) -> str:
    """`0 (ranks 0-2), -9 (rank 3)`."""
    by_code = grouped(("unknown" if rank.exit_code is None else str(rank.exit_code), rank.rank) for rank in ranks)
    return ", ".join(f"{code} ({name_ranks(who)})" for code, who in by_code.items())


def _findings(a: Mapping[str, Finding], b: Mapping[str, Finding]) -> Iterable[RunDifference]:
    """Compare findings by id: summaries contain steps and times of their run. New ones come first, errors before the
    rest."""
    for found, others, where in ((b, a, "only in B"), (a, b, "only in A")):
        only = [f for f in found.values() if f.id not in others]
        for finding in sorted(only, key=lambda f: f.severity != "error"):
            sides = (None, finding.summary) if found is b else (finding.summary, None)
            yield RunDifference("findings", finding.id, sides[0], sides[1], f"{finding.id}, {where}: {finding.summary}")


def _speed(a: RunEvidence, b: RunEvidence) -> tuple[Figure | None, list[Unknown]]:
    measured = [_step_times(evidence) for evidence in (a, b)]
    unknown = [Unknown(f"step time of {name}", why) for name, why in zip("AB", measured, strict=True)
               if isinstance(why, str)]  # fmt: skip
    one, other = (t if isinstance(t, StepTimes) else None for t in measured)
    if one is None and other is None:
        return None, unknown
    spreads = [None if t is None else (t.low, t.high) for t in (one, other)]
    middles = [None if t is None else t.median for t in (one, other)]
    return Figure(STEP_TIME, "ms", middles[0], middles[1], spreads[0], spreads[1]), unknown


def _step_times(evidence: RunEvidence) -> StepTimes | str:
    """The middle of its ranks, which wait for each other in most jobs; the reason where there is none."""
    times = [rank.step_times for rank in evidence.ranks if rank.step_times is not None]
    if evidence.job.get("worker_side") == "off":
        return "its ranks had no worker side"
    if not times:
        return "no rank has recorded any: it made too few steps, an older distdbg wrote it, or it still runs"
    windows = max(t.windows for t in times)
    if windows < _FEWEST_WINDOWS:
        return f"only {windows} looks saw a step done, and {_FEWEST_WINDOWS} are needed for a spread"
    return StepTimes(
        windows, median(t.median for t in times), median(t.low for t in times), median(t.high for t in times)
    )


def _slower(speed: Figure | None) -> Iterable[RunDifference]:
    """Beyond the noise of both: the middle halves of their steps do not touch."""
    if speed is None or not speed.a or not speed.b or speed.a_spread is None or speed.b_spread is None:
        return
    apart = speed.b_spread[0] > speed.a_spread[1] or speed.a_spread[0] > speed.b_spread[1]
    if not apart or abs(speed.b / speed.a - 1) < _LEAST_SPEED:
        return
    slow = max(speed.a, speed.b) / min(speed.a, speed.b)
    word = "slower" if speed.b > speed.a else "faster"
    yield RunDifference("speed", STEP_TIME, f"{speed.a:.4g} ms", f"{speed.b:.4g} ms",
                     f"B is {slow:.3g} times {'as slow' if word == 'slower' else 'as fast'}: "
                     f"{speed.a:.4g} ms a step in A, {speed.b:.4g} ms in B, beyond the spread of both")  # fmt: skip


def _memory(a: RunEvidence, b: RunEvidence) -> tuple[list[Figure], list[Unknown]]:
    figures, unknown = [], []
    host = [max((r.peak_rss_bytes or r.rss_bytes or 0 for r in e.ranks), default=0) or None for e in (a, b)]
    if any(host):
        figures.append(Figure("most host memory of a rank", "bytes", host[0], host[1]))
    unknown += [Unknown(f"host memory of {name}", "no rank's record has any") for name, value in
                zip("AB", host, strict=True) if value is None]  # fmt: skip
    what, device = "most device memory allocated of a rank", [_allocated(e) for e in (a, b)]
    if not all(device) and any(used := [_in_use(e) for e in (a, b)]):
        what, device = "most memory in use of a rank's GPUs, by everybody", used
    if any(device):
        figures.append(Figure(what, "bytes", device[0], device[1]))
        unknown += [Unknown(f"device memory of {name}", "it was not launched with --memory, or used no device")
                    for name, value in zip("AB", device, strict=True) if value is None]  # fmt: skip
    return figures, unknown


def _in_use(evidence: RunEvidence) -> int | None:
    looks = (look for node in evidence.nodes for course in node.courses.values() for look in course)
    return max((look.gpu_used for look in looks if look.gpu_used), default=None)


def _allocated(evidence: RunEvidence) -> int | None:
    points = [p.allocated for r in evidence.ranks if r.memory is not None for p in r.memory.points]
    return max((p for p in points if p), default=None)


def _more(memory: Iterable[Figure]) -> Iterable[RunDifference]:
    for figure in memory:
        if not figure.a or not figure.b:
            continue
        more = figure.b - figure.a
        if abs(more) >= max(_LEAST_BYTES, _LEAST_MEMORY * figure.a):
            a, b = (f"{value / 2**30:.2f} GiB" for value in (figure.a, figure.b))
            share = f"{100 * more / figure.a:+.0f} %"
            yield RunDifference("memory", figure.what, a, b, f"{figure.what}: {a} in A, {b} in B ({share})")


# -- what may be the reason ---------------------------------------------------------------------------------------


def _code(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterable[RunDifference]:
    """Compare the code by commit. Of uncommitted changes only their existence is known."""
    sides = [_of(job, "git") for job in (a, b)]
    commits = [{"commit": str(git["commit"])[:12] + (" with changes" if git.get("dirty") else "")}
               if git.get("commit") else {} for git in sides]  # fmt: skip
    yield from _keys("code", *commits)
    if a.get("cwd") != b.get("cwd"):
        yield from _keys("code", {"folder": a.get("cwd")}, {"folder": b.get("cwd")})


def _command(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterable[RunDifference]:
    """Word by word. The value of an option is reported with the option."""
    one, other = _words(a), _words(b)
    for tag, i, j, k, m in SequenceMatcher(None, one, other, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        parts = [(i, j, k, m)] if j - i != m - k else [(i + n, i + n + 1, k + n, k + n + 1) for n in range(j - i)]
        for first, last, begin, end in parts:
            before = one[first - 1] if first else ""
            what = before if before.startswith("-") and "=" not in before else "words"
            yield _different("command", what, shlex.join(one[first:last]) or None, shlex.join(other[begin:end]) or None)


def _words(job: Mapping[str, Any]) -> list[str]:
    """The words of the command without those that only name the run."""
    given = job.get("argv")
    argv = [str(word) for word in given] if isinstance(given, list) else []
    for option in _NAMES:
        if option in argv:
            at = argv.index(option)
            del argv[at : at + 2]
    return [word for word in argv if not word.startswith(tuple(f"{option}=" for option in _NAMES))]


def _world(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterable[RunDifference]:
    worlds = [{name: _of(job, "topology").get(name) for name in _WORLD} | {"worker_side": job.get("worker_side")}
            for job in (a, b)]  # fmt: skip
    yield from _keys("world", *worlds)


def _environment(a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[list[RunDifference], list[Unknown]]:
    """Variables that the launch recorded. Masked values cannot be compared."""
    variables = [{str(v.get("name")): v.get("value") for v in value if isinstance(v, dict)}
            if isinstance(value := job.get("environment"), list) else {} for job in (a, b)]  # fmt: skip
    masked = sorted(name for name in variables[0].keys() & variables[1].keys()
                    if "***" in str(variables[0][name]) and variables[0][name] == variables[1][name])  # fmt: skip
    unknown = [Unknown("whether " + ", ".join(masked) + (" is" if len(masked) == 1 else " are") + " the same",
                       "secrets are masked in the record of a run")] if masked else []  # fmt: skip
    return list(_keys("environment", *variables)), unknown


def _keys(part: Part, a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterable[RunDifference]:
    for name in sorted(a.keys() | b.keys()):
        if a.get(name) != b.get(name):
            old, new = (None if v is None else str(v) for v in (a.get(name), b.get(name)))
            yield _different(part, name, old, new)


def _different(part: Part, what: str, a: str | None, b: str | None) -> RunDifference:
    if a is None:
        words = f"{what}: {b} in B, not in A"
    else:
        words = f"{what}: {a} in A, {'not in B' if b is None else f'{b} in B'}"
    return RunDifference(part, what, a, b, words)


def _of(job: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = job.get(name)
    return value if isinstance(value, dict) else {}


def parts_of(differences: Sequence[RunDifference]) -> dict[str, list[RunDifference]]:
    """The differences by part, in the order of the verdict."""
    parts: dict[str, list[RunDifference]] = {}
    for difference in differences:
        parts.setdefault(difference.part, []).append(difference)
    return parts
