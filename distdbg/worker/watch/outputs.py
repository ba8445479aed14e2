"""Keep weak references to what modules produced in a forward, and find the first of them that is not finite.

The hook does no arithmetic (traced_outputs.py). Compiled modules have none.

An output that is not finite within a module whose own output is finite (a mask of attention) is intended, and so is an
input of a module whose output is finite (NaN for a missing value). The input of the first other module decides: if it
was finite, the module produced the value; if not, the forward of the module around it did; if the model's own input was
not finite, the data did. If that input is gone, the data did if the same samples of the batch are not finite.
"""

from __future__ import annotations

from typing import Any

from distdbg.worker.hooks.traced_outputs import Held, calls, names, record
from distdbg.worker.models import inner_of, is_compiled
from distdbg.worker.watch.figures import has_same_bad_rows, is_finite, is_mask, statistics


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


_MOST_NAMES = 5


def origin(calls: list[ModuleCall]) -> dict[str, object]:
    """For the facts: `made` is module, before (in `module`, before `before`), data, loss (all modules' outputs are
    finite) or unknown, with the reason in `because`."""
    if not calls:
        return {"made": "unknown", "because": "no module was observed"}
    traceless = _is_traceless(calls)
    for number, call in enumerate(calls):
        bad = next((one for one in call.outputs if not is_finite(one)), None)
        masks = traceless or _gives_finite(call)
        if bad is None and (masks or _finite(call.inputs, lost=call.lost_input) is not False):
            continue
        around = _around(calls, number)
        if any(map(_gives_finite, around)):
            continue
        found = _by_input(call, around, bad)
        if found["made"] == "module":  # earlier calls do not matter: its input was finite
            found["output"] = statistics(bad)
        elif found["made"] != "data":
            found["gone"] = sum(other.lost_output for other in calls[:number])
        return found
    lost = [call.name for n, call in enumerate(calls)
            if call.lost_output and not any(map(_gives_finite, _around(calls, n)))]  # fmt: skip
    if lost:
        some = ", ".join(name or "the model itself" for name in lost[-3:])
        return {"made": "unknown", "because": f"outputs were no longer there ({len(lost)}, such as of {some})"}
    return {"made": "loss", "output": _worst(calls[-1].outputs)}


def bad_weights(model: Any) -> dict[str, object]:
    """The number of parameters that are not finite, of all, and some names."""
    found = [(name, is_finite(p)) for name, p in model.named_parameters()]
    bad = [name.removeprefix("module.") for name, finite in found if not finite]
    return {"bad_weights": len(bad), "weights": len(found), "bad_weight_names": bad[:_MOST_NAMES]}


def bad_gradients(model: Any, order: list[str]) -> dict[str, object]:
    """The module, latest in `order` (that of a forward), that has a parameter whose gradient is not finite: a backward
    reaches it first. `after` is the module that the backward ran through before."""
    bad: list[str] = []
    good: set[str] = set()
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            name = name.removeprefix("module.")  # noqa: PLW2901
            if is_finite(parameter.grad):
                good.add(name)
            else:
                bad.append(name)
    owners, finite = ({name.rpartition(".")[0] for name in names} for names in (bad, good))
    last = next((name for name in reversed(order) if name in owners), None)
    later = order[order.index(last) + 1 :] if last is not None else []
    after = next((name for name in later if name in finite), None)
    return {"made": "gradient", "module": last, "after": after, "bad_gradients": len(bad),
            "gradients": len(bad) + len(good), "bad_names": bad[:_MOST_NAMES]}  # fmt: skip


def _by_input(call: ModuleCall, around: list[ModuleCall], output: Any) -> dict[str, object]:
    state = _finite(call.inputs, lost=call.lost_input)
    fields: dict[str, object] = {"module": call.name, "input": _worst(call.inputs)}
    if state:
        return {"made": "module", **fields}
    root = around[-1] if around else call
    bad_batch = next((one for one in root.inputs if not is_finite(one) and not is_mask(one)), None)
    if root.name:
        bad_batch = None
    if state is None:
        if bad_batch is not None and has_same_bad_rows(bad_batch, output):
            return {**fields, "made": "data", "traced": False, "input": statistics(bad_batch)}
        why = "its input was no longer there" if call.lost_input else "its input holds -inf, as masks do"
        return {"made": "near", "because": why, **fields} | _of_batch(bad_batch)
    for outer in around:
        if _finite(outer.inputs, lost=outer.lost_input):
            return {**fields, "made": "before", "module": outer.name, "before": call.name}
    if bad_batch is not None:
        return {**fields, "made": "data", "input": statistics(bad_batch)}
    return {"made": "near", "because": "its input was not finite", **fields}


def _of_batch(bad_batch: Any) -> dict[str, object]:
    return {} if bad_batch is None else {"batch": statistics(bad_batch)}


def _is_traceless(calls: list[ModuleCall]) -> bool:
    """Whether only the batch still has the value and some module got finite inputs: it may have been masked."""
    batch = {id(one) for one in calls[-1].inputs}
    made = [one for call in calls for one in (*call.outputs, *call.inputs) if id(one) not in batch]
    return all(map(is_finite, made)) and any(call.inputs and all(map(is_finite, call.inputs)) for call in calls)


def _around(calls: list[ModuleCall], number: int) -> list[ModuleCall]:
    """The modules around the call, the innermost first: they end after it."""
    found: list[ModuleCall] = []
    inner = calls[number]
    for later in calls[number + 1 :]:
        if inner.is_within(later):
            found.append(later)
            inner = later
    return found


def _gives_finite(call: ModuleCall) -> bool:
    return bool(call.outputs) and _finite(call.outputs, lost=call.lost_output) is True


def _finite(tensors: list[Any], *, lost: bool) -> bool | None:
    """None where it is unknown: a tensor is gone, or -inf is the only value that is not finite."""
    bad = [one for one in tensors if not is_finite(one)]
    if any(not is_mask(one) for one in bad):
        return False
    return None if bad or lost else True


def _worst(tensors: list[Any]) -> dict[str, object] | None:
    chosen = next((one for one in tensors if not is_finite(one)), tensors[0] if tensors else None)
    return None if chosen is None else statistics(chosen)
