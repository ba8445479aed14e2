"""The interface of a lint rule: its context, and its hits with a line and a column, which become findings."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from distdbg.lint.script.events import Events
from distdbg.lint.script.kinds import PREPARED
from distdbg.lint.script.loops import Loops
from distdbg.lint.script.ranks import Ranks
from distdbg.lint.script.roles import Roles
from distdbg.lint.script.script import Script
from distdbg.lint.script.values import ValueFlow
from distdbg.lint.script.words import Needs
from distdbg.model import Confidence, FindingDoc, Severity

#: a stable rule runs by default, one of the preview if it is asked for
Tier = Literal["stable", "preview"]


@dataclass(frozen=True)
class Insert:
    """An edit that is certain: a line of text put above line `before` (1-based), indented as that line is."""

    before: int
    text: str


@dataclass(frozen=True)
class Hit:
    """A mistake at `node`; `related` are other places that a reader wants to see, each with why.

    `severity`: None for that of the catalogue.
    """

    node: ast.AST
    summary: str
    confidence: Confidence = "likely"
    severity: Severity | None = None
    related: tuple[tuple[ast.AST, str], ...] = ()
    fix: Insert | None = None


class Context:
    """A script and what is known about it; every part is worked out when the first rule asks for it."""

    def __init__(self, script: Script) -> None:
        self.script = script
        #: a rule was told that nothing shows several ranks: its silence says nothing about a helper that knows of them
        self.turned_away = False
        #: what `script.collectives` has found out about a call: several rules ask for the same ones
        self.collectives: dict[ast.Call, object] = {}

    @cached_property
    def values(self) -> ValueFlow:
        return ValueFlow(self.script)

    @cached_property
    def ranks(self) -> Ranks:
        return Ranks(self.script, self.values)

    @cached_property
    def roles(self) -> Roles:
        return Roles(self.script, self.values)

    @cached_property
    def events(self) -> Events:
        return Events(self.script, self.values)

    @cached_property
    def loops(self) -> Loops:
        return Loops(self.script, self.values, self.events)

    @cached_property
    def wraps(self) -> list[ast.Call]:
        """Where models are wrapped in DDP or FSDP."""
        return self.values.of_kind("ddp", "fsdp")

    @cached_property
    def wraps_or_prepares(self) -> bool:
        """Are models wrapped in DDP or FSDP here, or given to accelerate or Fabric to do it?"""
        return bool(self.wraps or self.values.of_kind(PREPARED))

    @cached_property
    def starts_group(self) -> bool:
        """Does the file, or what it calls from others, start a process group of more than one rank?"""
        calls = self.script.calls("init_process_group", "init_distributed", "init_distributed_mode", "init_dist")
        return not all(map(_of_one_rank, calls))

    def of_a_test(self, node: ast.AST) -> bool:
        """Is the node in this file, and holds it tests of pytest or unittest? One process runs these."""
        return self._holds_tests and self.script.file_of(node) is self.script.file

    @cached_property
    def _holds_tests(self) -> bool:
        file = self.script.file
        if "def test" not in file.text or ("pytest" not in file.text and "unittest" not in file.text):
            return False
        functions = (f for f in self.script.all(ast.FunctionDef) if self.script.file_of(f) is file)
        return any(f.name.startswith("test") for f in functions)

    @property
    def distributed(self) -> bool:
        """Does the file show that several ranks run it? That a helper of another file could ask for a rank does not."""
        self.turned_away |= not self._distributed
        return self._distributed

    @cached_property
    def _distributed(self) -> bool:
        text = self.script.file.text
        return (
            self.starts_group
            or any(part in text for part in ("distributed", "DistributedData", "DDP", "FSDP", "horovod"))
            or re.search(r"\b(?:ddp|dist|hvd)\b|(?:\b|_)(?:rank|RANK)\b", text) is not None
        )

    @cached_property
    def frameworks(self) -> set[str]:
        """Frameworks that drive the loop of this file, by what the file uses of them and not by what it imports."""
        found: set[str] = set()
        script = self.script
        classes: list[ast.ClassDef] = script.all(ast.ClassDef)
        bases = {script.dotted(b) for c in classes for b in c.bases if not script.linked(b)}
        own = {script.dotted(b) for c in classes if script.file_of(c) is script.file for b in c.bases}
        if any(re.search(r"(?:LightningModule|LightningFlow)$", b) for b in bases):
            found.add("lightning")
        if any(b.endswith("LightningDataModule") for b in own):  # one of another file serves other loops, too
            found.add("lightning")
        for call, name in script.call_names.items():
            its = _framework(name)
            if its and not script.linked(call.func):  # else it is among what is linted, and does what is seen there
                found.add(its)
        if any(re.search(r"^transformers\..*Trainer$", b) for b in bases):
            found.add("trainer")
        return found


def _of_one_rank(start: ast.Call) -> bool:
    """`init_process_group("nccl", rank=0, …)`, `world_size=1`: by a constant, there is one rank."""
    told = {k.arg: k.value.value for k in start.keywords if isinstance(k.value, ast.Constant)}
    return told.get("rank") == 0 or told.get("world_size") == 1


def _framework(name: str) -> str:
    last = name.rpartition(".")[2]
    if last == "Accelerator" or (last == "prepare" and "accelerator" in name.lower()):
        return "accelerate"
    if name.startswith(("lightning.", "pytorch_lightning.")) and last in ("Trainer", "Fabric"):
        return "fabric" if last == "Fabric" else "lightning"
    if name.startswith("transformers.") and last.endswith("Trainer"):
        return "trainer"
    return "deepspeed" if last == "initialize" and name.startswith("deepspeed") else ""


@dataclass(frozen=True)
class LintRule:
    """`doc` is the entry of the catalogue for the one id that its hits have.

    Its module has the others as NEEDS, UNLESS, FIXES and REAL_MISTAKES; the tier is told by the folder of the module.
    """

    doc: FindingDoc
    #: words without which it finds nothing
    needs: Needs
    check: Callable[[Context], Iterable[Hit]]
    #: text of a file of which the rule says nothing
    unless: re.Pattern[str] | None = None
    #: some of its hits have a fix
    fixes: bool = False
    tier: Tier = "stable"
    #: the folder of its module
    family: str = ""
    #: number of mistakes of public repositories that are known with this id
    real_mistakes: int = 0

    def hits(self, context: Context) -> list[Hit]:
        """`unless` is searched last: few files have hits, and a search of a text is slow."""
        found = list(self.check(context))
        return [] if found and self.unless is not None and self.unless.search(context.script.text) else found
