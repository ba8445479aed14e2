"""Save what is needed to repeat a forward that produced a value that is not finite (`--on-nonfinite dump`).

    batch.pt    {"args", "kwargs", "rng", "autocast"}: plain tensors and containers
    state.pt    the tensors of the model by name, before the optimizer's step
    model.pkl   the model itself, as a pickle in which each tensor is a name of state.pt
    script.py   the script, for the classes that it defines
    about.json  the finding, and which of the other files exist, or why not

Written in node-local memory, where twice as much is free; the agent moves it into the run directory. The batch of one
step is kept alive for it until the next forward, and not copied.

Under DDP the first rank of the group saves the model where it sees the value at this step, too, as far as this rank can
know; else each rank saves its own. A replay compares the steps.
"""

from __future__ import annotations

import io
import os
import pickle
import sys
from collections.abc import Mapping
from typing import Any

from distdbg.plain_text import first_words
from distdbg.worker.agent_files import AgentFiles, no_room
from distdbg.worker.context import RankContext
from distdbg.worker.link import encode
from distdbg.worker.models import inner_of, is_ddp, is_fsdp1
from distdbg.worker.watch.figures import is_finite, probe
from distdbg.worker.watch.root import RootWatch

#: This is only loaded once torch is, and may not be what loads it.
torch: Any = sys.modules["torch"]
SCHEMA = "distdbg.nonfinite/1"
_LONGEST_SCRIPT = 4 << 20


class NonfiniteDump:
    """One for a rank; writes once."""

    def __init__(self, context: RankContext, root: RootWatch) -> None:
        self._context, self._root = context, root
        self._files = AgentFiles(context, "nonfinite")
        #: the inputs of the newest forward: a watch keeps them once it found something in it
        self.last: dict[str, Any] | None = None
        self._saved: list[str] = []
        self._because: dict[str, str] = {}
        root.listen(self._begins)

    def model(self, model: Any) -> None:
        self._root.model(model)

    def end(self) -> None:
        self.last = None
        self._root.unsubscribe(self._begins)

    def _begins(self, _module: Any, args: Any, kwargs: Any) -> None:
        if torch.is_grad_enabled():
            self.last = {"args": args, "kwargs": kwargs, "rng": random_states(), "autocast": _autocast()}

    def write(
        self, held: dict[str, Any] | None, model: Any, fields: dict[str, object], optimizer: str, *, failed: bool
    ) -> dict[str, object]:
        """The files that exist, and why others do not. `held` is the result of `last` at the time of the finding.

        Our own saves send no events."""
        self._root.unhook()  # a model is saved without us
        heard_again = self._context.bus.mute("save", "save-end")
        try:
            left_out = self._try("batch.pt", lambda: self._batch(held))
            first = _first_of_group(model)
            elsewhere = first if first is not None and not failed and _others_see(model, fields) else None
            if elsewhere is None:
                self._try("state.pt", lambda: self._state(model, alone=first is None))
            self._try("script.py", self._script)
            about = self._about(model, fields, optimizer, left_out, elsewhere)
            self._try("about.json", lambda: self._files.write("about.json", encode(about).encode()))
            self._files.send()
        finally:
            heard_again()
        return {"files": self._saved, "because": self._because,
                **({"left_out": left_out} if left_out else {}),
                **({"model_of_rank": elsewhere} if elsewhere is not None else {})}  # fmt: skip

    def _try(self, name: str, write: Any) -> Any:
        try:
            result = write()
        except Exception as error:
            self._because[name] = first_words(f"{type(error).__name__}: {error}", 300)
            return None
        if name not in self._because:
            self._saved.append(name)
        return result

    def _fits(self, name: str, size: int, writers: int | None = None) -> bool:
        """Whether as much again stays free for others."""
        if because := no_room(self._files.folder, 2 * size, writers):
            self._because[name] = f"it is {size >> 20} MiB: {because}"
        return name not in self._because

    def _batch(self, held: dict[str, Any] | None) -> list[str]:
        if held is None:
            why = "the model's forward was not observed: it is compiled, or the model is not known"
            self._because["batch.pt"] = why
            return []
        plain = Plain()
        kept = {**held, "args": plain.of(held["args"], "args"), "kwargs": plain.of(held["kwargs"], "kwargs"),
                "rng": plain_states(held["rng"])}  # fmt: skip
        if self._fits("batch.pt", plain.size):
            self._files.write_through("batch.pt", lambda path: torch.save(kept, path))
        return plain.left_out

    def _state(self, model: Any, *, alone: bool) -> None:
        why = "the model is gone" if model is None else ""
        if model is not None and (is_fsdp1(model) or any(hasattr(p, "_local_tensor") for p in model.parameters())):
            why = "its parameters are sharded: each rank has a part of them"
        if why:
            self._because |= {"state.pt": why, "model.pkl": why}
            return
        state, pickled, because = state_of(inner_of(model))
        if not self._fits("state.pt", sum(map(nbytes, state.values())), 1 if alone and is_ddp(model) else None):
            self._because["model.pkl"] = "it is useless without state.pt"
            return
        self._files.write_through("state.pt", lambda path: torch.save(state, path))
        if pickled is None:
            self._because["model.pkl"] = because
        else:
            self._files.write("model.pkl", pickled)
            self._saved.append("model.pkl")

    def _script(self) -> None:
        path = getattr(sys.modules.get("__main__"), "__file__", None)
        if not path or not path.endswith(".py") or os.path.getsize(path) > _LONGEST_SCRIPT:
            self._because["script.py"] = "the program is no Python file of a usual length"
            return
        with open(path, "rb") as file:
            self._files.write("script.py", file.read())

    def _about(
        self, model: Any, fields: dict[str, object], optimizer: str, left_out: list[str] | None, elsewhere: int | None
    ) -> dict[str, object]:
        inner = inner_of(model) if model is not None else None
        first = next(inner.parameters(), None) if inner is not None else None
        main = sys.modules.get("__main__")
        named = None if inner is None else f"{type(inner).__module__}.{type(inner).__qualname__}"
        return {"schema": SCHEMA, "rank": self._context.rank, "step": fields.get("at"), "found": fields,
                "model": named, "optimizer": optimizer,
                "script": getattr(main, "__file__", None), "argv": sys.argv, "path": sys.path[0] if sys.path else "",
                "cwd": os.getcwd(), "torch": str(torch.__version__),
                "device": None if first is None else first.device.type,
                "saved": self._saved, "because": self._because, "left_out": left_out or [],
                "model_of_rank": elsewhere}  # fmt: skip


def _first_of_group(model: Any) -> int | None:
    """The global rank of the first rank with the same parameters under DDP; None where that is this one."""
    group = getattr(model, "process_group", None) if is_ddp(model) else None
    if group is None or group.rank() == 0:
        return None
    return int(torch.distributed.get_process_group_ranks(group)[0])


def _others_see(model: Any, fields: dict[str, object]) -> bool:
    """Whether the other ranks of a group of DDP report it at this step: their weights and gradients are the same.
    A GPU's gradients are read too late for that; and one copy of weights that are bad already is enough.
    """
    if fields.get("made") == "gradient" or fields.get("bad_weights"):
        return True
    gradients = [p.grad for p in model.parameters() if p.grad is not None and not p.grad.is_sparse]
    bad = [not is_finite(probe(g)) for g in gradients if g.device.type == "cpu"]
    return bool(bad) and len(bad) == len(gradients) and all(bad)


def _autocast() -> dict[str, str]:
    """Device -> dtype, where the forward runs under torch.autocast."""
    return {device: str(torch.get_autocast_dtype(device)).removeprefix("torch.")
            for device in ("cuda", "cpu") if torch.is_autocast_enabled(device)}  # fmt: skip


_DEEPEST = 16


class Plain:
    """`left_out` names what was neither tensor nor container, number nor text; `size` is bytes."""

    def __init__(self) -> None:
        self.left_out: list[str] = []
        self.size = 0

    def of(self, value: object, path: str, deepest: int = _DEEPEST) -> object:
        """Tensors go to the CPU, without their graph and without the rest of a larger one that they are a part of."""
        if isinstance(value, torch.Tensor) and not hasattr(value, "_local_tensor"):
            self.size += nbytes(value)
            return value.detach().to("cpu", copy=True)
        if value is None or isinstance(value, (bool, int, float, str, torch.dtype, torch.device)):
            return value
        if deepest and isinstance(value, dict):
            return {key: self.of(one, f"{path}.{key}", deepest - 1) for key, one in value.items()
                    if isinstance(key, (str, int))}  # fmt: skip
        if deepest and isinstance(value, (list, tuple)):
            found = [self.of(one, f"{path}[{n}]", deepest - 1) for n, one in enumerate(value)]
            return found if isinstance(value, list) else tuple(found)
        self.left_out.append(f"{path}: {type(value).__name__}")
        return None


def state_of(module: Any) -> tuple[dict[str, Any], bytes | None, str]:
    """The tensors by name, the pickle, and the reason where there is no pickle."""
    state = {name: p.detach() for name, p in module.named_parameters(remove_duplicate=False)}
    state |= dict(module.named_buffers(remove_duplicate=False))
    file = io.BytesIO()
    pickler = _Pickler(file, module, state)
    try:
        pickler.dump(module)
    except Exception as error:
        return state, None, first_words(f"it cannot be pickled: {type(error).__name__}: {error}", 300)
    return state, file.getvalue(), ""


class _Pickler(pickle.Pickler):
    """A tensor becomes ("parameter" or "tensor", name, whether it requires a gradient)."""

    def __init__(self, file: Any, module: Any, state: dict[str, Any]) -> None:
        super().__init__(file, protocol=4)
        self._state = state
        named = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
        self._names = {id(tensor): name for name, tensor in named}
        self._kept: list[Any] = []

    def persistent_id(self, value: Any) -> tuple[str, str, bool] | None:
        if not isinstance(value, torch.Tensor):
            return None
        name = self._names.get(id(value))
        if name is None:
            name = self._names[id(value)] = f"(attribute {len(self._kept)})"
            self._kept.append(value)  # its id is its name only while it lives
            self._state[name] = value.detach()
        kind = "parameter" if isinstance(value, torch.nn.Parameter) else "tensor"
        return kind, name, bool(value.requires_grad)


def nbytes(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())


def random_states() -> dict[str, Any]:
    """The states of loaded libraries: torch, the current CUDA device, Python and NumPy. About 15 us."""
    states: dict[str, Any] = {"torch": torch.get_rng_state()}
    if torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing():
        states["cuda"] = torch.cuda.get_rng_state()
    if "random" in sys.modules:
        states["python"] = sys.modules["random"].getstate()
    if "numpy.random" in sys.modules:
        states["numpy"] = sys.modules["numpy"].random.get_state()
    return states


def plain_states(states: Mapping[str, Any]) -> dict[str, Any]:
    """As plain data, NumPy's array as a list of numbers."""
    return {name: (state[0], state[1].tolist(), *state[2:]) if name == "numpy" else state
            for name, state in states.items()}  # fmt: skip
