"""Programs with one planted fault each, and healthy ones that look like them, under the watch and the profiler.

Each runs in all four ranks of one launch over two nodes, with every guard and watch on and five of its steps profiled;
every check judges what its ranks have left in the run directory. `Verdict:` in its docstring says what must come of it,
and nothing else may; the line that ends in `# the fault` is the one that must be named.
"""

import re
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from distdbg.collect.files.trace_files import read_trace_file
from distdbg.diagnosis.rules import all_rules
from distdbg.evidence.jsonl import objects
from distdbg.evidence.records import RankTexts, rank_record
from distdbg.evidence.run import RunEvidence
from distdbg.model import fold_ranks
from tests.breadth import verdict_of
from tests.conftest import run_command

FOLDER = Path(__file__).parent / "programs" / "perf"
PROGRAMS = sorted(FOLDER.glob("bad_*.py")) + sorted(FOLDER.glob("good_*.py"))
RANKS = 4
#: The steps of each program that ranks.py has profiled.
FIRST, LAST = 4, 8
TROUBLE = ("subscriber-dropped", "guard-failed", "not-hooked", "watch-failed", "profile-failed")
_VERDICT = re.compile(r"^Verdict: (?P<id>[\w-]+)(?:; ranks: (?P<ranks>[\d,-]+))?(?:; says: (?P<says>.+))?$", re.M)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.xdist_group("perf-programs")]


@pytest.fixture(scope="module")
def ran(request, tmp_path_factory):
    """What each rank left of all programs that are selected: one launch, two nodes of two ranks."""
    wanted = [i.callspec.params["program"] for i in request.session.items if getattr(i, "function", None) is test_perf]
    folder = tmp_path_factory.mktemp("perf")
    levels = ("--watch", "numerics,gradients,compile")
    command = [sys.executable, "-m", "distdbg", "launch", "--nodes", "2", "--nproc-per-node", "2", *levels]
    environment = {"OMP_NUM_THREADS": "1", "HOME": str(folder)}
    done = run_command([*command, str(FOLDER / "ranks.py"), *map(str, wanted)], folder, env=environment, timeout=840)
    assert done.code == 0, done
    attempt = done.run.attempt(1)
    files = [attempt.rank(rank) for rank in range(RANKS)]
    return [Told(lines(f.facts), lines(f.gradients), f.folder) for f in files]


class Told(NamedTuple):
    """A rank's lines, with their numbers, and its folder."""

    facts: list
    gradients: list
    folder: Path

    def of(self, name):
        """(facts, gradients, first step) of the program of that name."""
        starts = [(n, fact) for n, (_, fact) in enumerate(self.facts) if fact.get("kind") == "program"]
        ends = [n for n, _ in starts[1:]] + [len(self.facts)]
        (found,) = [(n, end, fact) for (n, fact), end in zip(starts, ends, strict=True) if fact["name"] == name]
        begin, end, fact = found
        until = self.facts[end][1]["before"] if end < len(self.facts) else float("inf")
        gradients = [(n, line) for n, line in self.gradients if fact["before"] < line["step"] <= until]
        return self.facts[begin:end], gradients, fact["before"]


def lines(file):
    return objects(file.read_text())[0] if file.exists() else []


def judged(name, files):
    """What every check finds in what stands in the run directory of this one program, and what stood in its way."""
    ranks, profiles, trouble = [], [], []
    for rank, of_rank in enumerate(files):
        facts, gradients, before = of_rank.of(name)
        trouble += [str(fact) for _, fact in facts if fact.get("kind") in TROUBLE]
        texts = RankTexts(f"ranks/{rank}", {"exit_code": 0}, tuple(facts), gradients=tuple(gradients))
        ranks.append(rank_record(rank, None, {"host": f"node{rank // 2}"}, texts))
        file = of_rank.folder / "profile" / f"steps-{before + FIRST}-{before + LAST}.json.gz"
        profiles.append(read_trace_file(file, file.name, (FOLDER,)))
    evidence = RunEvidence({}, 1, tuple(ranks), (), profiles=tuple(profiles))
    return [finding for rule in all_rules() for finding in rule.run(evidence)], trouble


@pytest.mark.breadth(by=verdict_of)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.stem)
def test_perf(program, ran):
    source = program.read_text()
    wanted = _VERDICT.search(source)
    assert wanted, f"{program} promises no verdict"
    findings, trouble = judged(program.name, ran)
    assert trouble == []
    found = [finding for finding in findings if finding.severity != "info"]
    context = "\n".join(f"{f.id} {f.ranks}: {f.summary} | {f.cause}" for f in found)
    assert [f.id for f in found] == ([] if wanted["id"] == "none" else [wanted["id"]]), context
    for finding in found:
        assert fold_ranks(finding.ranks) == wanted["ranks"], context
        assert (wanted["says"] or "") in finding.summary, context
        said = set(re.findall(rf"{program.name}:(\d+)", f"{finding.summary} {finding.cause}"))
        assert said == {str(n) for n, line in enumerate(source.splitlines(), 1) if line.endswith("# the fault")}, (
            context
        )
