"""Replay a forward that made a non-finite value, on one process, from what `--on-nonfinite dump` saved."""

from __future__ import annotations

import ast
import contextlib
import pickle
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from distdbg.errors import EvidenceUnreadable, NothingToAnalyse, Refused, ToolMissing
from distdbg.evidence import jsonl
from distdbg.given_file import read_given
from distdbg.plain_text import first_words
from distdbg.rundir import open_regular

_KEPT = (ast.Import, ast.ImportFrom, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_SCHEMA = "distdbg.nonfinite/1"
#: What becomes of `__main__` in the pickle: a module of this name, with the script's definitions.
_SCRIPT = "distdbg_replayed_script"


def definitions_of(script: Path, name: str) -> ModuleType:
    """A module of this name with the script's imports, classes, functions and plain values, as far as they go.

    What stands below an `if`, and all other statements, are left out: they would train. A definition that needs one of
    those is not there. Raises OSError, SyntaxError, ValueError.
    """
    module = ModuleType(name)
    module.__file__ = str(script)
    with open_regular(script) as file:
        tree = ast.parse(file.read(), str(script))
    for statement in tree.body:
        if isinstance(statement, _KEPT) or _is_plain(statement) or _only_imports(statement):
            code = compile(ast.Module([statement], []), str(script), "exec", dont_inherit=True, flags=_future(tree))
            with contextlib.suppress(Exception):
                exec(code, module.__dict__)
    return module


def _is_plain(statement: ast.stmt) -> bool:
    """`WIDTH = 64`: what is written out, and calls nothing."""
    if not isinstance(statement, (ast.Assign, ast.AnnAssign)) or statement.value is None:
        return False
    return not any(isinstance(node, (ast.Call, ast.Await, ast.Yield)) for node in ast.walk(statement.value))


def _only_imports(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.Try):
        return False
    inner = [*statement.body, *(one for handler in statement.handlers for one in handler.body)]
    return all(isinstance(one, (ast.Import, ast.ImportFrom)) or _is_plain(one) for one in inner)


def _future(tree: ast.Module) -> int:
    """Annotations may stay text where the script says so."""
    import __future__

    names = {alias.name for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"
             for alias in node.names}  # fmt: skip
    return __future__.annotations.compiler_flag if "annotations" in names else 0


@dataclass(frozen=True)
class SavedStep:
    """What about.json says of the step that was saved; a field of another type counts as missing."""

    rank: int | None
    step: int | None
    device: str
    model: str
    model_of_rank: int | None
    #: folders that the job imported from
    folders: tuple[str, ...]
    left_out: tuple[str, ...]
    #: why a file was not saved, by its name
    because: Mapping[str, Any]
    #: the finding of the job's own run
    found: Mapping[str, Any]


@dataclass(frozen=True)
class Replay:
    """`fields` are those of the fact that a rank sends, None where all stayed finite. `loss` says what the backward
    began from."""

    about: SavedStep
    fields: dict[str, Any] | None
    loss: str
    device: str
    notes: tuple[str, ...]


def replay(folder: Path) -> Replay:
    """Runs the model's own code, and unpickles it: only for trusted folders. Raises DistdbgError."""
    about = _about(folder)
    try:
        import torch
    except ImportError:
        raise ToolMissing("torch is not installed here", "Replay where the job ran.") from None
    if about.left_out:
        raise Refused(f"the batch held what cannot be saved plainly: {', '.join(about.left_out[:5])}",
                      "Give the model tensors, numbers, text, and lists, tuples and dicts of them.")  # fmt: skip
    cuda = about.device == "cuda" and torch.cuda.is_available()
    device = "cuda" if cuda else "cpu"
    batch = _load(folder / "batch.pt", about, device)
    home = _home_of_model(folder, about)
    model = _model(home, about, _load(home / "state.pt", about, device))
    notes = (
        [] if device == about.device else [f"it ran on {about.device or 'a device not recorded'}, and here on {device}"]
    )
    fields, loss = _run(model, batch, about)
    return Replay(about, fields, loss, device, tuple(notes))


def _about(folder: Path) -> SavedStep:
    path = folder / "about.json"
    try:
        about = jsonl.parse(read_given(path))
    except FileNotFoundError:
        raise NothingToAnalyse(f"{str(folder)!r} has no about.json: nothing was saved there by --on-nonfinite dump",
                               "Name the folder ranks/RRRRR/nonfinite of a run.") from None  # fmt: skip
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not JSON"
        raise EvidenceUnreadable(f"{path} cannot be read: {why}", "Copy the whole folder again.") from None
    if not isinstance(about, dict) or about.get("schema") != _SCHEMA:
        raise EvidenceUnreadable(f"{path} is not of {_SCHEMA}", "Replay with the distdbg that wrote it.")
    left_out = about.get("left_out")
    return SavedStep(
        rank=jsonl.rank(about.get("rank")),
        step=jsonl.integer(about, "step"),
        device=jsonl.text(about, "device"),
        model=jsonl.text(about, "model"),
        model_of_rank=jsonl.rank(about.get("model_of_rank")),
        folders=tuple(filter(None, (jsonl.text(about, "path"), jsonl.text(about, "cwd")))),
        left_out=tuple(map(str, left_out)) if isinstance(left_out, list) else (),
        because=jsonl.inner(about, "because"),
        found=jsonl.inner(about, "found"),
    )


def _home_of_model(folder: Path, about: SavedStep) -> Path:
    """Under DDP the first rank may have saved the model that all have: as it was when that rank saw it, which may be a
    step later, with the weights of that one."""
    rank = about.model_of_rank
    if rank is None:
        return folder
    home = folder.absolute().parent.parent / f"{rank:05d}" / folder.absolute().name
    if not (home / "state.pt").is_file():
        raise NothingToAnalyse(f"the model is rank {rank}'s, and {home / 'state.pt'} is not there",
                               "Copy the folders of all ranks, or look whether that rank could save it.")  # fmt: skip
    step, there = about.step, _about(home).step
    if step is None or step != there:
        raise Refused(f"the batch is of step {step}, and the model, which rank {rank} saved, is as it was at step "
                      f"{there}: with other weights", f"Replay rank {rank}'s own batch: name its folder.")  # fmt: skip
    return home


def _load(path: Path, about: SavedStep, device: str) -> Any:  # noqa: ANN401
    import torch

    try:
        with open_regular(path) as file:
            return torch.load(file, map_location=device, weights_only=True)
    except FileNotFoundError:
        because = about.because.get(path.name) or "it is missing"
        raise NothingToAnalyse(f"{path} was not saved: {because}",
                               "Without it there is nothing to run again.") from None  # fmt: skip
    except Exception as error:
        raise EvidenceUnreadable(f"{path} cannot be read: {_first_line(error)}", "Was it copied whole?") from None


def _model(home: Path, about: SavedStep, state: Mapping[str, Any]) -> Any:  # noqa: ANN401
    path = home / "model.pkl"
    sys.path += [folder for folder in about.folders if folder not in sys.path]
    try:
        with open_regular(path) as file, contextlib.redirect_stdout(sys.stderr):
            return _Unpickler(file, state, home / "script.py").load()
    except FileNotFoundError:
        because = about.because.get("model.pkl") or "it is missing"
        raise NothingToAnalyse(f"{path} was not saved: {because}",
                               "batch.pt and state.pt can be loaded by hand.") from None  # fmt: skip
    except Exception as error:
        raise Refused(f"the model {about.model} cannot be built here: {_first_line(error)}",
                      "Its classes are imported as in the job: run this in the job's environment and folder, and see "
                      "that they are at the top of the script or in a module.") from None  # fmt: skip


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: Any, state: Mapping[str, Any], script: Path) -> None:  # noqa: ANN401
        super().__init__(file)
        self._state, self._script = state, script

    def persistent_load(self, pid: Any) -> Any:  # noqa: ANN401
        import torch

        kind, name, wants = pid
        tensor = self._state[name]
        return torch.nn.Parameter(tensor, requires_grad=wants) if kind == "parameter" else tensor.requires_grad_(wants)

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401
        if module == "__main__":
            if _SCRIPT not in sys.modules:
                sys.modules[_SCRIPT] = definitions_of(self._script, _SCRIPT)
            module = _SCRIPT
        return super().find_class(module, name)


def _run(model: Any, batch: Mapping[str, Any], about: SavedStep) -> tuple[dict[str, Any] | None, str]:  # noqa: ANN401
    """One forward; where its outputs are finite, a backward."""
    from distdbg.worker.watch import outputs
    from distdbg.worker.watch.figures import is_finite
    from distdbg.worker.watch.outputs import bad_gradients, bad_weights, origin

    kept: list[Any] = []  # so that nothing is gone when it is looked at
    handles = outputs.listen_to(model)
    handles += [m.register_forward_hook(lambda *called: kept.append(called[1:])) for m in model.modules()]
    try:
        _put_back(batch["rng"])
        with contextlib.redirect_stdout(sys.stderr), _autocast(batch.get("autocast", {})):
            output = model(*batch["args"], **batch["kwargs"])
            loss, what = _loss(output)
        found = origin(outputs.made())
        fields = {"at": about.step, "late": False, **bad_weights(model)}
        if found["made"] != "loss":
            return {**fields, **found}, "nothing: its forward was enough"
        if loss is None:
            return None, what
        if not is_finite(loss):
            return {**fields, **found, "loss": str(float(loss.detach()))}, what
        loss.backward()
        order = [name for name, _ in model.named_modules()]
        gradients = bad_gradients(model, order)
        return ({**fields, **gradients} if gradients["bad_gradients"] else None), what
    except Exception as error:
        raise Refused(
            f"the model's forward or backward raised here: {_first_line(error)}",
            "It has to run on one process: what talks to other ranks inside a forward cannot.",
        ) from None
    finally:
        for handle in handles:
            handle.remove()
        outputs.leave()


def _loss(output: Any) -> tuple[Any, str]:  # noqa: ANN401
    """The model's own loss, where its output has one; else the sum of its outputs."""
    from distdbg.worker.watch.figures import tensors_in

    own = output.get("loss") if isinstance(output, dict) else getattr(output, "loss", None)
    if own is not None and getattr(own, "requires_grad", False):
        return own.sum(), "the model's own loss"
    sums = [tensor.float().sum() for tensor in tensors_in(output) if tensor.requires_grad]
    if not sums:
        return None, "nothing: no output leads back to a parameter"
    return sum(sums[1:], sums[0]), "the sum of the model's outputs, as the loss is the script's own"


def _autocast(devices: Mapping[str, str]) -> contextlib.ExitStack:
    import torch

    stack = contextlib.ExitStack()
    for device, kind in devices.items():
        stack.enter_context(torch.autocast(device, dtype=getattr(torch, kind)))
    return stack


def _put_back(states: Mapping[str, Any]) -> None:
    """The random number generators go on where they were in the job; CUDA's only where there is one."""
    import random

    import torch

    torch.set_rng_state(states["torch"].cpu())
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"].cpu())
    if "python" in states:
        random.setstate(states["python"])
    if "numpy" in states:
        import numpy

        numpy.random.set_state(states["numpy"])


def _first_line(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"{type(error).__name__}: {first_words((str(error).strip() or '-').splitlines()[0], 300)}"
