"""Read the classes that a torch.save file names as stand-ins, and write them back. None of their code is loaded.

A training framework keeps its enums and NumPy's states beside the weights. A stand-in holds what such an object was
made of; it can do nothing else.
"""

from __future__ import annotations

import copyreg
import pickle
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

#: modules whose names stand for data of a training framework. What is not here is refused: a file that was made to run
#: code would otherwise be copied with it
_MODULES = ("megatron", "transformer_engine", "nvidia_resiliency_ext")
_NAMES = frozenset(
    {
        "numpy.core.multiarray._reconstruct",
        "numpy._core.multiarray._reconstruct",
        "numpy.core.multiarray.scalar",
        "numpy._core.multiarray.scalar",
        "numpy.ndarray",
        "numpy.dtype",
        "_io.BytesIO",
        "pathlib.PosixPath",
        "pathlib._local.PosixPath",
        "types.SimpleNamespace",
        "signal.Signals",
        "datetime.timedelta",
    }
)


class Inert:
    """An object of a class that is not loaded: the arguments that made it, and its state."""

    #: what the file calls the class
    module = name = ""

    def __new__(cls, *args: Any) -> Inert:
        made = super().__new__(cls)
        made.args = args
        made.called = False
        made.state = None
        return made

    def __init__(self, *_args: Any) -> None:
        self.called = True

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __reduce_ex__(self, _protocol: Any) -> Any:
        made = (type(self), self.args) if self.called else (copyreg.__newobj__, (type(self), *self.args))  # type: ignore[attr-defined]
        return (*made, self.state)

    args: tuple[Any, ...]
    called: bool
    state: Any


def stand_ins(names: Iterable[str]) -> list[tuple[type[Inert], str]]:
    """A class for each name that stands for data, as torch's `safe_globals` takes them."""
    found = []
    for full in names:
        if full in _NAMES or full.partition(".")[0] in _MODULES:
            module, _, name = full.rpartition(".")
            found.append((type("Inert", (Inert,), {"module": module, "name": name}), full))
    return found


#: the pickler that is written in C looks each class up by its import
_PYTHON: Any = vars(pickle)["_Pickler"]


class _Pickler(_PYTHON):  # type: ignore[misc]
    def save_type(self, obj: Any) -> None:
        if not issubclass(obj, Inert):
            super().save_type(obj)
            return
        self.write(pickle.GLOBAL + f"{obj.module}\n{obj.name}\n".encode())
        self.memoize(obj)

    dispatch = _PYTHON.dispatch | {type: save_type}


#: for `torch.save(…, pickle_module=)`
PICKLE = SimpleNamespace(__name__="distdbg.shrink.checkpoint.inert", Pickler=_Pickler)
