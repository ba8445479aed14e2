"""Define the forward hooks of `--watch`: they keep weak references to the inputs and outputs of modules.

A hook is a function of this file and no closure: a model with it can still be copied and pickled. The file is not in
watch/, because torch.compile can meet the hook in traced code; there it is a constant `if`.

A hook that is removed while its module's hooks run (by another hook of it, or by another thread's save) is called once
more, and without kwargs.
"""

from __future__ import annotations

import sys
from _weakref import ref
from collections import deque
from typing import Any

from distdbg.worker.watch.figures import tensors_in

#: tensors, with the version that each had
Held = tuple[tuple[Any, int], ...]

#: This is only loaded once torch is, and may not be what loads it.
_torch: Any = sys.modules["torch"]
Tensor, is_grad_enabled = _torch.Tensor, _torch.is_grad_enabled
is_dynamo_compiling = _torch.compiler.is_dynamo_compiling

#: Of a longer forward only the newest calls are kept.
_MOST = 8192
names: dict[int, str] = {}
#: Called when the model's forward begins, and for each module's output while its shapes are recorded.
began: Any = None
shaped: Any = None
calls: deque[tuple[str, Held, Held]] = deque(maxlen=_MOST)


def record(module: Any, args: Any, kwargs: Any, output: Any = ...) -> None:
    """Returns nothing, so that the output stays what it is."""
    if is_dynamo_compiling() or output is ... or not is_grad_enabled():
        return
    try:
        name = names.get(id(module))
        if name is not None:
            calls.append((name, _held((args, kwargs) if kwargs else args), _held(output)))
    except Exception:
        return


def _held(value: object) -> Held:
    if type(value) is tuple and len(value) == 1:
        value = value[0]
    found: Any = (value,) if type(value) is Tensor else tensors_in(value)
    return tuple([(ref(tensor), tensor._version) for tensor in found if tensor.is_floating_point()])


def begins(module: Any, args: Any, kwargs: Any = None) -> None:
    """Returns nothing, so that the arguments stay what they are."""
    if is_dynamo_compiling() or began is None or kwargs is None:
        return
    try:
        began(module, args, kwargs)
    except Exception:
        return


def has_shape(module: Any, args: Any, kwargs: Any, output: Any = ...) -> None:
    if is_dynamo_compiling() or shaped is None or output is ...:
        return
    try:
        shaped(module, args, kwargs, output)
    except Exception:
        return
