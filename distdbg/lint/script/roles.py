"""Tell what an object is for where its constructor is not in sight: by its class, else by its annotation and name.

A role that only a name gives is no proof: what is found by it is at most "likely".
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from distdbg.lint.script.script import Script, last_word
from distdbg.lint.script.values import ValueFlow

_OPTIMIZER = re.compile(
    r"^_?(?:optim(?:izers?)?|opt)(?:_?(?:g|d|gen|disc|generator|discriminator|model|net|\d+))?$", re.IGNORECASE
)
_SCHEDULER = re.compile(r"^_?(?:lr_?)?sched(?:uler)?s?(?:_?(?:lr|g|d|\d+))?$", re.IGNORECASE)
_SCALER = re.compile(r"^_?(?:(?:grad|amp|loss|fp16)_?)?scaler$", re.IGNORECASE)
#: what the one model of a file is called
THE_MODEL = re.compile(r"^_?(?:model|net|network)$")
_MAKES_OR_USES_ONE = (
    r"build|make|create|get|load|run|init|dispatch|prepare|wrap|setup|define|eval|evaluate|train|test|save|export|"
    r"convert|_"
)
#: what a model may be called, or one of several: `student_model`, `encoder2`; no function such as `build_model`
A_MODEL = re.compile(
    rf"^_?(?!(?:{_MAKES_OR_USES_ONE})_)(?:\w+_)?(?:model|net|network|encoder|decoder|backbone|extractor|generator|detector|"
    r"classifier|transformer|unet|policy|student|teacher)(?:_ema|_?\d)?_?$",
    re.IGNORECASE,
)
#: schedules of transformers and diffusers are LambdaLR of torch
_MADE_OF_TORCHS = re.compile(r"^(?:transformers|diffusers)\.(?:.*\.)?get_\w*schedule\w*$")


@dataclass(frozen=True)
class Role:
    """False where the object has not this role, or one of its own ways. `of_torch`: the class is known.

    `of_another`: made by a class of another library, whose name tells what it is (`FusedAdam`, `PolyLR`).
    """

    held: bool = False
    of_torch: bool = False
    of_another: bool = False

    def __bool__(self) -> bool:
        return self.held


class Roles:
    def __init__(self, script: Script, values: ValueFlow) -> None:
        self.script = script
        self.values = values

    def optimizer(self, node: ast.expr) -> Role:
        """An optimizer of torch; else what comes from elsewhere and is annotated or called so."""
        return self._role(node, "optimizer", "Optimizer", _OPTIMIZER)

    def scheduler(self, node: ast.expr) -> Role:
        """A scheduler of torch that is stepped without an epoch; else what is annotated or called so."""
        return self._role(node, "scheduler", "LRScheduler", _SCHEDULER)

    def scaler(self, node: ast.expr) -> Role:
        """A GradScaler of torch; else what is annotated or called so."""
        return self._role(node, "scaler", "GradScaler", _SCALER)

    def _role(self, node: ast.expr, kind: str, annotation: str, name: re.Pattern[str]) -> Role:
        sites = self.values.sites(node)
        if sites:
            of_torch = all(self._of_torch(site, kind) for site in sites)
            if of_torch or all(self._inherits(site, kind) for site in sites):
                return Role(held=True, of_torch=of_torch)
            of_another = all(self._of_another_library(site, kind) for site in sites)
            return Role(held=of_another, of_another=of_another)
        bound = self.values.assignments(node)
        if bound and not all(isinstance(a.value, (ast.Name, ast.Attribute, ast.Call)) for a in bound):
            return Role()
        given = self.annotation(node)
        if given:
            return Role(held=given.rpartition(".")[2] == annotation)
        return Role(held=name.match(last_word(node)) is not None and not any(map(self._of_another_class, bound)))

    def _inherits(self, site: ast.Call, kind: str) -> bool:
        """Of torch, or of a class that is linted, too, and inherits from torch's."""
        inherits = self.values.kind(site) == kind and self.values.class_named(site.func) is not None
        return inherits or self._of_torch(site, kind)

    def _of_torch(self, site: ast.Call, kind: str) -> bool:
        called = self.script.call_names[site]
        if self.values.kind(site) != kind:
            return False
        if kind == "scaler":
            return called.startswith("torch.")
        if kind == "optimizer":
            return called.startswith("torch.optim")
        return ".lr_scheduler." in called or _MADE_OF_TORCHS.match(called) is not None

    def _of_another_library(self, site: ast.Call, kind: str) -> bool:
        """A class that is imported and called as torch's are, from a file that is not linted."""
        last = self.script.last_names[site]
        seen = self.values.class_named(site.func) is not None or self.values.callees(site)
        return self.values.kind(site) == kind and last[:1].isupper() and not seen

    def annotation(self, node: ast.expr) -> str:
        """The class that a parameter is annotated with: `Optimizer`."""
        function = self.script.function_of(node)
        if not isinstance(node, ast.Name) or function is None:
            return ""
        arguments = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
        found = next((a.annotation for a in arguments if a.arg == node.id), None)
        if isinstance(found, ast.Subscript):  # Optional[GradScaler]
            found = found.slice
        if isinstance(found, ast.BinOp):  # GradScaler | None
            found = found.left
        return self.script.dotted(found) if isinstance(found, (ast.Name, ast.Attribute)) else ""

    def _of_another_class(self, assigned: ast.Assign) -> bool:
        """Made by a class that is no optimizer of torch: `ScheduledOptim(…)`, whose step may clear by itself."""
        value = assigned.value
        if not isinstance(value, ast.Call):
            return False
        last = self.script.last_names[value]
        return last[:1].isupper() or last in ("initialize", "prepare", "setup", "setup_optimizers")
