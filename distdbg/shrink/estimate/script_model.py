"""Call the user's own function that makes a model with its loss, for an estimate.

    def make(batch, sequence):              # or neither, or one of them
        model = Net()
        ids = torch.zeros(batch, sequence, dtype=torch.long)
        return model, lambda: model(ids).mean()

It is called under FakeTensorMode: shapes are real, and there are no bytes.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from distdbg.errors import Refused, UsageError
from distdbg.shrink.estimate.estimating import EstimateRequest, Made
from distdbg.shrink.probe.building import brief


class ScriptModel:
    """The model of `path/to/train.py:make` or `package.module:make`, imported from the current directory."""

    positions = None
    layers = None

    def __init__(self, where: str, wanted: EstimateRequest) -> None:
        self._where, self._first = where, wanted
        self._function = _function(where)
        self._takes = set(inspect.signature(self._function).parameters) & {"batch", "sequence"}

    def make(self, wanted: EstimateRequest) -> Made | str:
        """The model and its loss, or why it cannot be had so. Raises Refused for what the function does wrong."""
        import torch

        if wanted.layers is not None:
            return "the script's own code decides it"
        for name in ("batch", "sequence"):
            if getattr(wanted, name) != getattr(self._first, name) and name not in self._takes:
                return f"{self._where} takes no `{name}`"
        if wanted.dtype == "bf16":
            torch.set_default_dtype(torch.bfloat16)
        made = self._call({name: getattr(wanted, name) for name in self._takes})
        if not (isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], torch.nn.Module)):
            raise Refused(f"{self._where} returns no model with its loss", _FORM)
        if not callable(made[1]):
            raise Refused(f"{self._where} returns a loss that cannot be called again", _FORM)
        return Made(made[0], self._guarded(made[1]))

    def _call(self, values: dict[str, int]) -> Any:
        try:
            return self._function(**values)
        except Exception as error:
            raise Refused(f"{self._where} fails: {brief(error)}", _WITHOUT_BYTES) from None

    def _guarded(self, loss: Callable[[], Any]) -> Callable[[], Any]:
        def call() -> Any:
            try:
                found = loss()
            except Exception as error:
                raise Refused(f"the loss of {self._where} fails: {brief(error)}", _WITHOUT_BYTES) from None
            if getattr(found, "grad_fn", None) is None or found.numel() != 1:
                raise Refused(f"the loss of {self._where} is no single number that has a gradient", _FORM)
            return found

        return call


_FORM = "It returns two things: the model, and a function without arguments that computes the loss."
_WITHOUT_BYTES = (
    "It runs on tensors without bytes: nothing can be read off them (.item(), .tolist()) or loaded into them."
)


def _function(where: str) -> Callable[..., Any]:
    module, _, name = where.rpartition(":")
    try:
        if not module.endswith(".py"):
            sys.path.insert(0, str(Path.cwd()))
        found = getattr(_file(Path(module)) if module.endswith(".py") else importlib.import_module(module), name, None)
    except (Exception, SystemExit) as error:
        raise UsageError(f"{module!r} cannot be imported: {brief(error)}", "Try `python -c 'import …'` here.") from None
    if not callable(found):
        raise UsageError(f"{module!r} has no function {name!r}", "Name it as train.py:make or package.module:make.")
    return found  # type: ignore[no-any-return]


def _file(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ImportError(f"there is no file {str(path)!r}")
    sys.path.insert(0, str(path.resolve().parent))
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module
