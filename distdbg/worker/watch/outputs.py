"""Keep weak references to the tensors that modules produced in the forward before a backward.

The hook does no arithmetic (traced_outputs.py). Compiled modules have none.
"""

from __future__ import annotations

from typing import Any

from distdbg.worker.models import inner_of, is_compiled
from distdbg.worker.traced_outputs import Held, calls, names, record


class ModuleCall:
    """One call of a module. Tensors that are gone, or were changed in place since, are not in `inputs` and
    `outputs`; `lost_…` is true where one is missing."""

    __slots__ = ("inputs", "lost_input", "lost_output", "name", "outputs")

    def __init__(self, name: str, inputs: Held, outputs: Held) -> None:
        self.name = name
        self.inputs, self.lost_input = _there(inputs)
        self.outputs, self.lost_output = _there(outputs)

    def is_within(self, other: ModuleCall) -> bool:
        return self.name != other.name and (not other.name or self.name.startswith(f"{other.name}."))


def listen_to(model: Any) -> list[Any]:
    """Hook all modules of a model, by their names inside DDP's wrapper; returns the handles of the hooks."""
    handles: list[Any] = []
    compiled: list[str] = []
    for name, module in inner_of(model).named_modules():
        if is_compiled(module):
            compiled.append(name)
        if not any(not above or name == above or name.startswith(f"{above}.") for above in compiled):
            names[id(module)] = name
            handles.append(module.register_forward_hook(record, with_kwargs=True))
    return handles


def forget() -> None:
    calls.clear()


def leave() -> None:
    calls.clear()
    names.clear()


def made() -> list[ModuleCall]:
    """The calls since the last `forget`, in the order of their ends."""
    return [ModuleCall(*one) for one in calls]


def _there(held: Held) -> tuple[list[Any], bool]:
    found = [tensor for weak, version in held if (tensor := weak()) is not None and tensor._version == version]
    return found, len(found) < len(held)
