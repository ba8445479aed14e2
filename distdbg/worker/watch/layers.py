"""List the layers of an optimizer's parameters: names in the model's order, and rows that are units."""

from __future__ import annotations

import sys
from typing import Any

from distdbg.worker.models import inner_of, is_ddp, is_fsdp1, parameters_of, plain_name
from distdbg.worker.watch.figures import local

#: This is only loaded once torch is, and may not be what loads it.
torch: Any = sys.modules["torch"]
#: A layer with fewer units is not looked at for dead ones; of more layers the first are.
_FEWEST_ROWS, _MOST_WITH_ROWS = 64, 512
_MOST_READERS = 4
_CONVOLUTIONS = (torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d)


class Layers:
    """`entries` are (layer, name in it, parameter's place in the optimizer); no tensor is kept."""

    def __init__(self, optimizer: Any, models: list[Any]) -> None:
        parameters = [p for p in parameters_of(optimizer) if p.requires_grad]
        self._ids = [id(p) for p in parameters]
        own = set(self._ids)
        # The newest model is last: of several (a generator and its critic) the parameters show the right one.
        held = {frozenset(map(id, model.parameters())): model for model in models}
        models = [model for ids, model in held.items() if own & ids]  # of one within another that which was called
        known = _names(models, own)
        placed = sorted(range(len(parameters)), key=lambda n: known.get(self._ids[n], (len(known) + n,))[0])
        self.names: list[str] = []
        self.kinds: list[str] = []
        self.places: list[tuple[int, int]] = []
        #: place in the optimizer -> rows, of those whose rows are units
        self.rows: dict[int, int] = {}
        for place in placed:
            _, path, module, kind = known.get(self._ids[place], (0, f"parameter {place}", None, ""))
            if not self.names or self.names[-1] != path:
                self.names.append(path)
                self.kinds.append(kind)
            self.places.append((len(self.names) - 1, place))
            if _has_units(module, parameters[place]) and len(self.rows) < _MOST_WITH_ROWS:
                self.rows[place] = int(local(parameters[place]).shape[0])
        #: place -> those that may read these units, and in how many groups they do; none where it is sharded
        self.readers: dict[int, list[tuple[int, int]]] = {}
        self._find_readers([(place, parameters[place], known.get(self._ids[place])) for place in placed])
        #: place -> which rows have had a gradient, and in so many samples
        self.alive: dict[int, Any] = {}
        self.samples = 0
        self.sharded = any(map(_is_sharded, parameters)) or any(map(is_fsdp1, models))
        self.copies, self.is_copy = _copies(models)
        self.optimizer = type(optimizer).__name__

    @property
    def count(self) -> int:
        return len(self.names)

    def still(self, optimizer: Any) -> bool:
        return [id(p) for p in parameters_of(optimizer) if p.requires_grad] == self._ids

    def description(self) -> dict[str, object]:
        rows = {str(layer): self.rows[place] for layer, place in self.places if place in self.rows}
        return {"layers": self.names, "kinds": self.kinds, "rows": rows, "sharded": self.sharded,
                "copies": self.copies, "of": self.optimizer}  # fmt: skip

    def _find_readers(self, parameters: list[tuple[int, Any, Any]]) -> None:
        """The next layers that take as many features as it has rows. Where there is none its rows are the
        outputs of the model: classes, boxes or words, and some may never occur."""
        later: list[tuple[int, int, int, int]] = []
        for place, parameter, known in reversed(parameters):
            if parameter.dim() < 2:
                continue
            if place in self.rows:
                rows, is_conv = parameter.shape[0], parameter.dim() > 2
                fits = [(other, groups) for other, takes, groups, dim in reversed(later)
                        if takes == rows or (is_conv and dim == 2 and takes % rows == 0)]  # fmt: skip
                if not fits:
                    del self.rows[place]
                self.readers[place] = [] if _is_sharded(parameter) else [fit for fit in fits[:_MOST_READERS] if fit[1]]
            groups = known[2].groups if known is not None and isinstance(known[2], _CONVOLUTIONS) else 1
            takes = parameter.shape[1] * groups
            later.append((place, takes, 0 if _is_sharded(parameter) else groups, parameter.dim()))


def _names(models: list[Any], own: set[int]) -> dict[int, tuple[int, str, Any, str]]:
    """id of a parameter -> its place in its model, the path of its module, that module, its class. Of a parameter that
    several modules share, the first; it has no units then."""
    found: dict[int, tuple[int, str, Any, str]] = {}
    for model in models:
        inner = inner_of(model)
        before = f"{type(inner).__name__}." if len(models) > 1 else ""
        for path, module in inner.named_modules(remove_duplicate=True):
            for name, parameter in module._parameters.items():
                key = id(parameter)
                if parameter is None or key not in own:
                    continue
                if key in found:
                    number, first, _, kind = found[key]
                    found[key] = number, first, None, kind
                    continue
                words = plain_name(path)
                is_unit = module if name == "weight" else None
                found[key] = len(found), before + words, is_unit, type(module).__name__
    return found


def _has_units(module: Any, parameter: Any) -> bool:
    """Whether the rows of this parameter are a layer's output units, and complete on this rank."""
    if not isinstance(module, (torch.nn.Linear, *_CONVOLUTIONS)) or parameter.dim() < 2:
        return False
    placements = getattr(parameter, "placements", ())
    whole = all(p.is_replicate() or (p.is_shard() and p.dim == 0) for p in placements)
    return whole and local(parameter).dim() > 1 and local(parameter).shape[0] >= _FEWEST_ROWS


def _is_sharded(parameter: Any) -> bool:
    return hasattr(parameter, "_local_tensor")


def _copies(models: list[Any]) -> tuple[int, bool]:
    """On how many ranks these gradients are the same, and whether another rank records them. No communication."""
    group = next((m.process_group for m in models if is_ddp(m)), None)
    if group is None:
        return 1, False
    return int(group.size()), group.rank() > 0
