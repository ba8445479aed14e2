"""Reduce other dimensions than layers: fewer experts, fewer rows of the vocabulary, less width. None is faithful.

The leaf of the config that counts experts, or rows, is found as the one that counts layers: it is changed alone, and
what became of the model's tensors says what it is. The narrower model then stands in the full one's place: layers are
chosen, compared and verified against it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from math import prod
from typing import Any

from distdbg.errors import Refused, UsageError
from distdbg.shrink.checkpoint.config_leaves import Config, Path, changed, dotted, integers
from distdbg.shrink.probe.building import Anatomy, Builder, brief
from distdbg.shrink.probe.controls import layer_lists
from distdbg.shrink.probe.edits import Edits
from distdbg.shrink.probe.shrinking import WantedLayers, shrink
from distdbg.shrink.vocabulary.selecting import CannotCutError, select
from distdbg.shrink.vocabulary.token_ids import is_token_id, named_ids, renumbered
from distdbg.shrink.vocabulary.tokenizer_files import TokenizerFiles

#: tensor -> (dimension, its size, what is left of it: the first so many)
Cuts = dict[str, tuple[int, int, int]]
#: so many sizes may be left as they were, where all of them together cannot be made smaller
_MOST_LEFT = 3
#: layers that are kept by default
ALL_KINDS = WantedLayers()
#: a smaller number that equals one of a layer's dimensions does so by chance
_WIDE = 16
Leaf = tuple[Path, int]
Least = Callable[[Path, int], int]


@dataclass(frozen=True)
class Narrowed:
    """One dimension made smaller. `experts`: the modules that hold them, as the model names them. `random`: there are
    no weights to take from the source. `rows`: the tokens that stay, where they are not the first so many."""

    axis: str
    edits: Edits
    before: str
    after: str
    cuts: Cuts = field(default_factory=dict)
    experts: tuple[str, ...] = ()
    random: bool = False
    rows: tuple[int, ...] = ()

    @property
    def words(self) -> str:
        fields = ", ".join(dotted(path) for path in self.edits if not is_token_id(path))
        what = f"{self.axis}: {self.after} of {self.before} ({fields})"
        return f"NOT FAITHFUL in memory or in what it computes: {what}"


def narrowed(
    builder: Builder,
    wanted: Mapping[str, Any],
    tokenizer: TokenizerFiles | None = None,
    layers: WantedLayers = ALL_KINDS,
) -> list[Narrowed]:
    """`wanted`: experts, vocab (numbers) and width (a factor), or None. `builder.full` is the narrower config after.

    Raises Refused where no leaf does that, or the model does not run; UsageError where there are fewer already.
    """
    found = []
    rows = partial(fewer_rows, tokenizer=tokenizer)
    for axis, narrow in (("experts", fewer_experts), ("vocab", rows), ("width", less_width)):
        if wanted.get(axis) is not None:
            one = narrow(with_kept_layers(builder, layers) if axis == "width" else builder, wanted[axis])
            if why := why_it_does_not_run(builder, one.edits, layers):
                raise Refused(f"with {axis} {one.after} of {one.before} the model does not run: {why}",
                              "Keep more: as many experts as are chosen at a time, or a multiple of their groups."
                              )  # fmt: skip
            builder.full = changed(builder.full, one.edits)
            found.append(one)
    return found


def with_kept_layers(builder: Builder, layers: WantedLayers) -> Builder:
    """The model with the layers that will be kept: it is built, and runs, in a fraction of the time."""
    edits = shrink(builder, layers).edits
    return Builder(builder.config(changed(builder.full, edits)), builder.model_class, builder.trust)


def why_it_does_not_run(builder: Builder, edits: Edits, layers: WantedLayers) -> str:
    """The error of a pass that the model does without one if it is not changed; empty if there is none."""
    return _Passes(with_kept_layers(builder, layers)).problem(edits)


def fewer_experts(builder: Builder, count: int) -> Narrowed:
    """The leaf that, changed alone, changes nothing but lists in layers, or first dimensions, of that many."""
    full, why = builder.whole, ""
    candidates = [(path, value) for path, value in integers(builder.full) if value > 1]
    candidates.sort(key=lambda leaf: "expert" not in str(leaf[0]))  # the order only saves builds
    for leaf, value in candidates:
        for less in dict.fromkeys((count, value // 2)) if count < value else (value // 2,):
            found = builder.anatomy(changed(builder.full, {leaf: less}))
            if isinstance(found, Exception):
                why = why or (f"{dotted(leaf)}: {brief(found)}" if "expert" in str(leaf) and less == count else "")
                continue
            changes = _experts(full, found, value, less)
            if changes is None:
                continue
            if count >= value:
                raise UsageError(f"--experts {count}: the model has {value}", f"Give 1 to {value - 1}.")
            if less != count:
                raise Refused(f"--experts {count} is refused by the config: {why}", "Keep more of them.")
            return Narrowed("experts", {leaf: count}, str(value), str(count), *changes)
    raise Refused("no field of the config counts experts" + (f" ({why})" if why else ""), "Leave --experts out.")


def _experts(full: Anatomy, found: Anatomy, value: int, less: int) -> tuple[Cuts, tuple[str, ...]] | None:
    """(what is cut, modules that hold experts), None where this leaf counts something else."""
    inside = tuple(f"{path}." for path in layer_lists(full))
    lists = [path for path, number in full.lists.items() if found.lists.get(path) != number]
    gone = tuple(f"{path}.{i}." for path in lists for i in range(less, value))
    if any((full.lists[p], found.lists.get(p)) != (value, less) or not p.startswith(inside) for p in lists):
        return None
    cuts: Cuts = {}
    holders = set(lists)
    for name, (shape, _) in full.tensors.items():
        if name.startswith(gone):
            continue
        new = found.tensors[name][0] if name in found.tensors else ()
        if new == shape:
            continue
        if not name.startswith(inside) or new[1:] != shape[1:] or not new or shape[0] * less != new[0] * value:
            return None
        cuts[name] = (0, shape[0], new[0])
        if len(shape) > 2 and shape[0] == value:
            holders.add(name.rpartition(".")[0])
    return (cuts, tuple(sorted(holders))) if holders and len(found.tensors) <= len(full.tensors) else None


def fewer_rows(builder: Builder, rows: int, tokenizer: TokenizerFiles | None = None) -> Narrowed:
    """The leaf, or all that have its value, that the input embedding has its rows from. The ids in the config follow
    where the tokenizer says which tokens stay."""
    full = builder.whole
    there = vocabulary_of(builder)
    if not 0 < rows < there:
        raise UsageError(f"--vocab {rows}: the model has {there} rows", f"Give 1 to {there - 1}.")
    leaves = [path for path, value in integers(builder.full) if value == there]
    kept, ids = _tokens(builder.full, tokenizer, rows, there)
    why = ""
    for chosen in (*([leaf] for leaf in leaves), leaves):
        edits: Edits = {**dict.fromkeys(chosen, rows), **ids}
        found = builder.anatomy(changed(builder.full, edits))
        if isinstance(found, Exception):
            why = f": {brief(found)}"
            continue
        cuts = _rows(full, found, there, rows)
        if cuts:
            return Narrowed("vocab", edits, str(there), str(rows), cuts, rows=kept)
    raise Refused(f"no field of the config gives the embedding {rows} rows in place of {there}{why}",
                  "A token that the config names (pad_token_id) may lie above; keep more rows.")  # fmt: skip


def vocabulary_of(builder: Builder) -> int:
    """The rows of the input embedding. Raises Refused where there is none."""
    shape = embedding_of(builder)
    if shape is None:
        raise Refused("the model has no vocabulary: no input embedding", "Leave --vocab out.")
    return shape[0]


def embedding_of(builder: Builder) -> tuple[int, int] | None:
    """Rows and width of the input embedding; None where there is none, or it is of the patches of an image."""
    try:
        rows, width = builder.model(builder.full).get_input_embeddings().weight.shape
    except Exception:
        return None
    return int(rows), int(width)


def _tokens(config: Config, tokenizer: TokenizerFiles | None, rows: int, there: int) -> tuple[tuple[int, ...], Edits]:
    """(the tokens that stay, the ids in the config with their new numbers); nothing where no tokenizer can be cut."""
    if tokenizer is None:
        return (), {}
    try:
        kept = select(tokenizer, rows, named_ids(config, there), there)
    except CannotCutError:
        return (), {}
    return tuple(kept), renumbered(config, there, {old: new for new, old in enumerate(kept)})


def _rows(full: Anatomy, found: Anatomy, there: int, rows: int) -> Cuts:
    """What is cut from `there` to `rows`; nothing where anything else changes."""
    if full.tensors.keys() != found.tensors.keys():
        return {}
    cuts: Cuts = {}
    for name, (shape, _) in full.tensors.items():
        new = found.tensors[name][0]
        if new == shape:
            continue
        differ = [(a, b) for a, b in zip(shape, new, strict=False) if a != b]
        if len(new) != len(shape) or differ != [(there, rows)]:
            return {}
        cuts[name] = (shape.index(there), there, rows)
    return cuts


def less_width(builder: Builder, factor: float, least: Least = lambda _path, _value: 1) -> Narrowed:
    """All sizes that the layers are made of, and those that must fit them, times `factor`; as few of them as possible
    left out where it must be. `least`: what a size is not made smaller than."""
    if not 0 < factor < 1:
        raise UsageError(f"--width {factor:g}: it is a factor between 0 and 1", "Write --width 0.25.")
    full = builder.whole
    sizes, fitting = _sizes(builder, full, factor, least)
    before = _elements(full)
    passes = _Passes(builder)
    why = "none of them changes what a layer consists of"
    for edits in _ways(sizes, fitting):
        found = builder.anatomy(changed(builder.full, edits))
        if isinstance(found, Exception):
            why = brief(found)
        elif edits and found.lists == full.lists and _elements(found) < before:
            problem = passes.problem(edits)
            if not problem:
                after = _elements(found) / before
                return Narrowed("width", edits, "all parameters of a layer", f"{100 * after:.1f} %", random=True)
            why = problem
    raise Refused(f"no sizes of the config can be made {factor:g} of what they are: {why}",
                  "Try another factor, or leave --width out.")  # fmt: skip


def _ways(sizes: list[Leaf], fitting: list[Leaf]) -> Iterator[Edits]:
    """All sizes, with none, one, two or all of those outside the layers; then with a few sizes left as they are."""
    few = [extra for count in range(3) for extra in combinations(fitting, count)]
    for left in range(min(_MOST_LEFT, max(0, len(sizes) - 1)) + 1):
        for out in combinations(sizes, left):
            kept = [size for size in sizes if size not in out]
            for extra in dict.fromkeys([*few, tuple(fitting)]):
                yield dict([*kept, *extra])


def _sizes(builder: Builder, full: Anatomy, factor: float, least: Least) -> tuple[list[Leaf], list[Leaf]]:
    """Integer leaves that change the shape of a tensor in a layer, and no number of layers, experts or rows; or that
    are refused alone. And those that change one outside the layers only, and are as wide as a tensor in them: a tower
    gives what the text takes."""
    inside = tuple(f"{path}." for path in layer_lists(full))
    sizes, others = [], []
    wide = {n for name in full.parameters if name.startswith(inside) for n in full.tensors[name][0] if n >= _WIDE}
    for path, value in integers(builder.full):
        small = max(least(path, value), round(value * factor))
        if value < 2 or small == value or isinstance(path[-1], int):
            continue
        found = builder.anatomy(changed(builder.full, {path: small}))
        if isinstance(found, Anatomy):
            if found.tensors.keys() != full.tensors.keys() or found.lists != full.lists:
                continue
            changes = [n for n in full.parameters if found.tensors[n] != full.tensors[n]]
            if not any(n.startswith(inside) for n in changes):
                others += [(path, small)] if changes and value in wide else []
                continue
        sizes.append((path, small))
    return sizes, others


def _elements(anatomy: Anatomy) -> int:
    """The number of elements of all parameters in layers."""
    inside = tuple(f"{path}." for path in layer_lists(anatomy))
    return sum(prod(anatomy.tensors[name][0]) for name in anatomy.parameters if name.startswith(inside))


class _Passes:
    """Passes of the narrower model against the full one's, with constant weights: with a text, an image, a sound."""

    def __init__(self, builder: Builder) -> None:
        from distdbg.shrink.verify.modalities import passes

        self._passes = partial(passes, builder)
        self._full = builder.full
        self._before = self._passes(builder.full)

    def problem(self, edits: Edits) -> str:
        """Why one fails that does not fail in the full one, or takes other sizes or numbers of what a processor gives,
        which stays the full model's. Empty where there is none."""
        for kind, after in self._passes(changed(self._full, edits)).items():
            before = self._before.get(kind, after)
            if after.why and not before.why:
                return after.why
            if after.takes != before.takes and not before.why:
                return f"it takes {_shapes(after.takes)} in place of {_shapes(before.takes)}"
        return ""


def _shapes(takes: Mapping[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in takes.items())
