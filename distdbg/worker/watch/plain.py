"""Convert a batch and a model to plain tensors and containers, which torch.load(weights_only=True) reads.

A model is pickled with each of its tensors replaced by a name; the tensors are saved separately, by their names.
"""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Mapping
from typing import Any

#: This is only loaded once torch is, and may not be what loads it.
torch: Any = sys.modules["torch"]
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
        return state, None, f"it cannot be pickled: {type(error).__name__}: {error}"[:300]
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
