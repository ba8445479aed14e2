"""The rules of the diagnosis: every function in a family's folder that `@rule` marks. Pure: evidence in, findings out.

`all_rules` is the ordered table of them: family, name, the findings that each rule can give, and its function. A new
function with `@rule`, or a new row of a guard table, is a new rule. `distdbg explain --why` prints the table with what
each rule found in a run. Thresholds are constants at the top of the rule's file, with their unit and reason.

The order of the rules is only the order in which they run. The order of causes in a report is that of
`model.CauseClass`; `verdict.py` applies it.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache

import distdbg.diagnosis
from distdbg.diagnosis.failures.of_ranks import failures
from distdbg.evidence.run import RunEvidence
from distdbg.findings import entry
from distdbg.model import Finding, FindingDoc, Unknown

Check = Callable[[RunEvidence], Iterable[Finding]]


@dataclass(frozen=True)
class Family:
    """A folder of rules. `question` is what it answers. `needs`: all that its rules need (`Rule.needs`); a family of
    which no part is there is not imported. None where at least one of its rules needs nothing in particular."""

    question: str
    needs: tuple[str, ...] | None = None


#: The families in the order in which their rules run.
FAMILIES = {
    "hang": Family("which ranks keep the others waiting, and in what"),
    "death": Family("how ranks ended, and what ended them"),
    "slow": Family(
        "what makes a step longer than it has to be",
        ("dump", "node.gpus", "preflight", "profiles", "rank.guards", "rank.nccl", "rank.phases"),
    ),
    "training": Family(
        "mistakes of the training loop, and gradients that do not train", ("rank.gradients", "rank.guards")
    ),
    "parallel": Family("mistakes in the use of DDP, FSDP, autocast and checkpoints", ("rank.guards",)),
    "memory": Family(
        "what fills the memory of a device or a host",
        ("failure.cuda-oom", "node.memory", "preflight", "rank.memory", "snapshots"),
    ),
    "nodes": Family(
        "what is wrong with nodes, networks and versions",
        ("clocks", "node.gpus", "preflight", "rank.guards", "rank.shrunk"),
    ),
}


@dataclass(frozen=True)
class Rule:
    """`docs`: the catalogue's entries (distdbg/findings/) of the findings that `check` can give. `explains`: ids of
    findings that other rules give for the same ranks, and that say less. `of_failures`: the rule alone decides what
    becomes of the failures of ranks that have one of its ids. `needs`: the parts of the evidence (`has_any`) of
    which one must be there for the rule to find anything; empty where that is not so simple."""

    family: str
    name: str
    docs: tuple[FindingDoc, ...]
    check: Check
    explains: tuple[str, ...] = ()
    of_failures: bool = False
    needs: tuple[str, ...] = ()

    def run(self, evidence: RunEvidence) -> Iterator[Finding]:
        """The findings of `check`. One that names ranks and no node gets the hosts of its ranks."""
        if self.needs and not has_any(evidence, self.needs):
            return
        for finding in self.check(evidence):
            hosts = () if finding.nodes or not finding.ranks else evidence.hosts_of(finding.ranks)
            yield replace(finding, nodes=hosts) if hosts else finding


def rule(
    *ids: str, needs: tuple[str, ...] = (), explains: tuple[str, ...] = (), of_failures: bool = False
) -> Callable[[Check], Rule]:
    """Make a function a rule that can give the findings of these ids."""

    def made(check: Check) -> Rule:
        family, docs = check.__module__.split(".")[-2], tuple(map(entry, ids))
        return Rule(family, check.__name__, docs, check, explains, of_failures, needs)

    return made


def all_rules() -> tuple[Rule, ...]:
    """Every rule, by family and then by name."""
    return tuple(rule for family in FAMILIES for rule in rules_of(family))


@cache
def rules_of(family: str) -> tuple[Rule, ...]:
    """The rules of one family, by name. Imports its folder."""
    found: dict[str, Rule] = {}
    folders = [f"{folder}/{family}" for folder in distdbg.diagnosis.__path__]
    for name in sorted(module.name for module in pkgutil.iter_modules(folders)):
        module = importlib.import_module(f"distdbg.diagnosis.{family}.{name}")
        rules = [*vars(module).values(), *getattr(module, "GUARD_RULES", ())]
        found |= {rule.name: rule for rule in rules if isinstance(rule, Rule) and rule.family == family}
    return tuple(found[name] for name in sorted(found))


def has_any(evidence: RunEvidence, parts: Iterable[str]) -> bool:
    """Whether the evidence has one of these: `failure.<id>` is a failure of a rank, other parts are fields."""
    return any(
        any(failure.finding == part.removeprefix("failure.") for failure in failures(evidence))
        if part.startswith("failure.")
        else evidence.has(part)
        for part in parts
    )


def _needed_rules(evidence: RunEvidence) -> Iterator[Rule]:
    """The rules of the families that the evidence can feed."""
    for name, family in FAMILIES.items():
        if family.needs is None or has_any(evidence, family.needs):
            yield from rules_of(name)


def run_rules(evidence: RunEvidence) -> tuple[list[Finding], list[Unknown]]:
    """Run every rule. Where a rule fails, its findings are unknown; the others run all the same."""
    found: list[Finding] = []
    unknown: list[Unknown] = []
    better: list[tuple[Rule, Finding]] = []
    for one in _needed_rules(evidence):
        given: list[Finding] = []
        try:
            given += one.run(evidence)
        except Exception as error:
            ids = ", ".join(doc.id for doc in one.docs)
            unknown.append(Unknown(ids, f"rule {one.name} failed: {error!r}; please report it"))
        found += given
        better += [(one, finding) for finding in given if one.explains]
    return [_explained(finding, better) for finding in found] if better else found, unknown


def _explained(finding: Finding, better: Iterable[tuple[Rule, Finding]]) -> Finding:
    """With the id of the finding of another rule that says more of these ranks, if there is one."""
    for one, other in better:
        about_it = bool(finding.ranks) and set(finding.ranks) <= set(other.ranks)
        if finding.explained_by is None and finding.id in one.explains and about_it:
            return replace(finding, explained_by=other.id)
    return finding
