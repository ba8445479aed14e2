"""List the layers of an optimizer's parameters, and compute the figures of one sample of their gradients."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from math import sqrt
from typing import Any

from distdbg.worker.models import inner_of, is_ddp, is_fsdp1, local_part, parameters_of, plain_name

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
                self.rows[place] = int(local_part(parameters[place]).shape[0])
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
    return whole and local_part(parameter).dim() > 1 and local_part(parameter).shape[0] >= _FEWEST_ROWS


def _is_sharded(parameter: Any) -> bool:
    return hasattr(parameter, "_local_tensor")


def _copies(models: list[Any]) -> tuple[int, bool]:
    """On how many ranks these gradients are the same, and whether another rank records them. No communication."""
    group = next((m.process_group for m in models if is_ddp(m)), None)
    if group is None:
        return 1, False
    return int(group.size()), group.rank() > 0


#: Zeros are counted in so many numbers of a tensor, evenly spaced.
_COUNTED = 1 << 12
#: A layer with more living rows than this share is not looked at any more.
_ENOUGH_ALIVE = 0.7


class GradientSample:
    """`figures` is one vector on the device of the gradients, None where there are none: all norms of gradients, of
    weights, zeros that were counted, rows without any gradient so far, and the scale of the gradients with whether the
    step is left out."""

    def __init__(self, layers: Layers, optimizer: Any, head: dict[str, object]) -> None:
        self._layers, self._head = layers, head
        parameters = [p for p in parameters_of(optimizer) if p.requires_grad]
        self._present: list[tuple[int, int]] = []
        self._counted: list[int] = []
        self._watched: list[int] = []
        self.figures: Any = None
        with torch.no_grad():
            self._look(optimizer, parameters)

    def _look(self, optimizer: Any, parameters: list[Any]) -> None:
        gradients: list[Any] = []
        weights: list[Any] = []
        for layer, place in self._layers.places:
            gradient = parameters[place].grad
            if gradient is None or gradient.is_sparse:
                continue
            gradient = _held(gradient)
            if gradient.numel() and gradient.device == (gradients or [gradient])[0].device:
                self._present.append((layer, place))
                gradients.append(gradient)
                weights.append(_held(parameters[place]))
        if not gradients or (gradients[0].is_cuda and torch.cuda.is_current_stream_capturing()):
            return
        kind = torch.float64 if any(g.dtype == torch.float64 for g in gradients) else torch.float32
        spaced = [_spaced(g) for g in gradients]
        self._counted = [s.numel() for s in spaced]
        figures = [*_norms(gradients, 2, kind), *_norms(weights, 2, kind), *_norms(spaced, 0, kind)]
        figures += [count.to(kind) for count in self._rows(gradients)]
        for name in ("grad_scale", "found_inf"):  # what a scaler gives to optimizers that leave out steps themselves
            value: Any = getattr(optimizer, name, None)
            known = isinstance(value, torch.Tensor) and value.device == gradients[0].device
            figures.append(value.detach().reshape(()).to(kind) if known else figures[0].new_zeros(()))
        self.figures = torch.stack(figures)

    def _rows(self, gradients: list[Any]) -> list[Any]:
        """Of each layer that may still have dead units: rows without any gradient so far, in it and in the layers that
        read them: a dead unit has neither, an output that no loss uses has no reader."""
        alive, counts = self._layers.alive, []
        of = {place: gradient for (_, place), gradient in zip(self._present, gradients, strict=True)}
        for (_, place), gradient in zip(self._present, gradients, strict=True):
            if place not in self._layers.rows:
                continue
            now = gradient.flatten(1).abs().sum(1) != 0
            readers = [one for one in self._layers.readers[place] if one[0] in of]
            if readers:
                now |= torch.stack([_is_read(of[one], len(now), groups) for one, groups in readers]).all(0)
            known = alive.get(place)
            alive[place] = now if known is None else known.logical_or_(now)
            counts.append((~alive[place]).sum())
            self._watched.append(place)
        return counts

    def line(self, figures: list[float]) -> dict[str, object] | None:
        """The line to send; None for a step that a scaler skips."""
        many = len(self._present)
        scale, left_out = figures[-2] or 1.0, figures[-1]
        if left_out:
            return None
        count = self._layers.count
        squares: tuple[list[float | None], list[float | None]] = ([None] * count, [None] * count)
        zeros, counted = [0.0] * count, [0] * count
        for n, (layer, _) in enumerate(self._present):
            for which, value in ((0, figures[n] / scale), (1, figures[many + n])):
                squares[which][layer] = (squares[which][layer] or 0.0) + value * value
            zeros[layer] += self._counted[n] - figures[2 * many + n]
            counted[layer] += self._counted[n]
        dead = self._dead(figures[3 * many : -2])
        total = sqrt(sum(value for value in squares[0] if value is not None))
        return {**self._head, "total": _short(total), "gradient": [_root(v) for v in squares[0]],
                "weight": [_root(v) for v in squares[1]],
                "zeros": [round(z / c, 4) if c else None for z, c in zip(zeros, counted, strict=True)],
                "dead": dead, "samples": self._layers.samples}  # fmt: skip

    def _dead(self, counts: list[float]) -> dict[str, int]:
        """By layer; a layer with enough living rows is left out from now on."""
        layers = self._layers
        layers.samples += 1
        of = {place: layer for layer, place in layers.places}
        dead = {}
        for place, count in zip(self._watched, counts, strict=True):
            if place in layers.rows and count < (1 - _ENOUGH_ALIVE) * layers.rows[place]:
                del layers.rows[place]
                layers.alive.pop(place, None)
            elif place in layers.rows:
                dead[str(of[place])] = int(count)
        return dead


def _is_read(gradient: Any, units: int, groups: int) -> Any:
    """Which input units of a layer have a gradient there; a linear layer reads each channel of a convolution as several
    features."""
    sizes = gradient.unflatten(0, (groups, -1)).abs()
    return sizes.sum((1, *range(3, sizes.dim()))).reshape(units, -1).sum(1) != 0


def _held(tensor: Any) -> Any:
    """This rank's part of a DTensor. No view is made of it: nothing here has a graph."""
    return getattr(tensor, "_local_tensor", tensor)


def _norms(tensors: list[Any], order: int, kind: Any) -> Iterable[Any]:
    """One number each; order 0 counts values that are not zero. One call from Python for all."""
    found: Iterable[Any] = torch._foreach_norm(tensors, order, dtype=kind)
    return found


def _spaced(tensor: Any) -> Any:
    """At most 2 * _COUNTED of its numbers, all of a small one; a view, in the order in which they lie in memory."""
    size = tensor.numel()
    if size < 2 * _COUNTED:
        return tensor
    apart = size // _COUNTED
    dense = tensor.is_contiguous() or (tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last))
    if dense:
        return torch.as_strided(tensor, (size // apart,), (apart,), tensor.storage_offset())
    return tensor.reshape(-1)[::apart]


def _root(value: float | None) -> float | None:
    return None if value is None else _short(sqrt(value))


def _short(value: float) -> float:
    return float(f"{value:.4g}")
