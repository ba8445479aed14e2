"""From a model and what is wanted of it to a small config that is proven to make the same layers.

For each stack several choices of layers are tried: the layers as chosen; with the layers that something outside taps;
with thresholds (`first_k_dense_replace`) moved to where they fall among the kept layers; at last the shortest prefix
that has all kinds, which keeps periods and offsets true. The first faithful one counts; without one the stack is
refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from distdbg.errors import Refused, UsageError
from distdbg.model import fold_ranks
from distdbg.plain_text import first_words
from distdbg.shrink.checkpoint.config_leaves import changed, dotted, entries, value_at
from distdbg.shrink.choosing import LEAST, order_warning
from distdbg.shrink.probe.building import Anatomy, Builder
from distdbg.shrink.probe.candidates import candidates, further_edits, names_sources, rules_of, smaller
from distdbg.shrink.probe.controls import StackGroup, find_groups, inside_of, why_not_counted
from distdbg.shrink.probe.edits import (
    Edits,
    edits_for,
    followers,
    index_roles,
    layers_named_from_ends,
    lists_a_layer,
    stage_starts,
)
from distdbg.shrink.probe.kinds import (
    counting,
    fingerprints,
    is_resized,
    kind_of,
    same,
)
from distdbg.shrink.probe.layer_numbers import numbers_that_moved
from distdbg.shrink.probe.stack import Stack


@dataclass(frozen=True)
class WantedLayers:
    """layers: a number for every stack, None for what its kinds need. stacks: numbers for some, by a part of a name."""

    layers: int | None = None
    keep: str = "kinds"
    stacks: Mapping[str, int] = field(default_factory=dict)


@dataclass
class ShrunkModel:
    """The small config (`edits` to the full one), what became of each stack, and what a person should know."""

    stacks: list[Stack]
    edits: Edits
    full: Anatomy
    small: Anatomy
    warnings: list[str]


def shrink(builder: Builder, wanted: WantedLayers) -> ShrunkModel:
    """Raises Refused where no faithful shrink was found, UsageError where what is wanted does not fit the model."""
    full = builder.whole
    groups, rest = find_groups(builder)
    if not groups:
        raise Refused(
            "nothing in the config counts the model's layers: "
            + (why_not_counted(builder, rest[0]) if rest else "it has no stack of layers"),
            "Use it whole, or write a small config by hand and build that with transformers.",
        )
    stacks = _outermost(builder, full, groups)
    # A list of modules with one for each tapped layer follows the taps, and is no stack of its own.
    tapped = {path for stack in stacks for path in stack.tap_lists}
    stacks = [s for s in stacks if s.group.leaf is not None or not tapped & set(s.group.lists)]
    _refuse_unknown(stacks, wanted)
    warnings = [f"{path} has {full.lists[path]} layers that no field of the config counts: kept whole" for path in rest]
    edits: Edits = {}
    for stack in stacks:
        _choose_layers(_Search(builder, stack, stacks, edits), wanted, warnings)
        edits |= stack.edits
    small = builder.anatomy(changed(builder.full, edits))
    if isinstance(small, Exception):
        raise Refused(f"the stacks shrink one by one but not together: {small}", "Name the stacks with --stack.")
    for stack in stacks:
        words = _problem_inside(small, stack, stack.kept).words
        if words:
            raise Refused(f"the stacks shrink one by one but not together: {words}", "Name the stacks with --stack.")
    warnings += [words for stack in stacks for words in numbers_that_moved(full, small, stack, stack.kept)]
    return ShrunkModel(stacks, edits, full, small, warnings)


def _outermost(builder: Builder, full: Anatomy, groups: list[StackGroup]) -> list[Stack]:
    """Lists inside a layer, such as experts, shrink with that layer's stack and not on their own.

    But where no two layers are alike (a backbone's stages), it is what is inside of them that can shrink.
    """
    found: list[Stack] = []
    todo = [g for g in groups if not any(inside_of(g, other) for other in groups if other is not g)]
    while todo:
        stack = _look(builder, full, todo.pop(0))
        inner = [g for g in groups if inside_of(g, stack.group)]
        if inner and len(set(stack.kinds)) == stack.group.layers:
            todo += [g for g in inner if not any(inside_of(g, other) for other in inner if other is not g)]
        else:
            found.append(stack)
    return found


def _look(builder: Builder, full: Anatomy, group: StackGroup) -> Stack:
    prints = {path: fingerprints(full, path) for path in group.stacks}
    numbers = {path: counting(p) for path, p in prints.items()}
    lists = lists_a_layer(builder, group)
    kind_lists, possible_taps = index_roles(builder, group)
    marks = [entries(value_at(builder.full, path), group.layers) for path in lists]
    # Which layer another one takes something from makes no kinds; that it does, does.
    marks = [[source == i for i, source in enumerate(m)] if names_sources(m) else m for m in marks]
    # A number that is another in nearly every layer (a rate that rises) makes no kinds.
    marks = [m for m in marks if len({repr(v) for v in m}) <= max(2, group.layers // 2)]
    members = [value_at(builder.full, path) for path in kind_lists]
    whole = []
    for i in range(group.layers):
        own = [kind_of(prints[path][i], numbers[path]) for path in group.stacks]
        whole.append((*own, *(repr(m[i]) for m in marks), *(i in m for m in members)))
    order = list(dict.fromkeys(whole))
    needed = set(stage_starts(builder, group))  # a stage without a layer would be another model
    needed |= layers_named_from_ends(builder, group)
    tap_lists = []
    for path in possible_taps:
        # Small numbers may be of another stack, or of stages: with the first layers kept they are right either way.
        last = max(value_at(builder.full, path))
        if last < max(4, group.layers // 2):
            needed |= set(range(last + 1))
        else:
            tap_lists.append(path)
    taps = sorted(needed | {i for path in tap_lists for i in value_at(builder.full, path)})
    return Stack(group, [order.index(w) for w in whole], numbers, prints, lists, kind_lists, tap_lists, taps)


def _choose_layers(search: _Search, wanted: WantedLayers, warnings: list[str]) -> None:
    """Set what is kept of a stack and the edits for it, by the first candidate that is faithful."""
    stack = search.stack
    number = _number_for(stack, wanted)
    choice, problem = search.find(number, wanted.keep)
    if choice is None:
        is_auto = number is None and wanted.keep == "kinds"
        raise Refused(*_refusal(search, problem, None if is_auto else search.find(None, "kinds")[0]))
    stack.kept, stack.edits = choice.kept, choice.edits
    warnings += [*_lost_kinds(stack), *filter(None, [order_warning(stack.name, stack.kept)])]


#: candidates that are looked at for one in which no number is another
_CANDIDATES_AFTER_A_FAITHFUL_ONE = 4


@dataclass(frozen=True)
class _Search:
    """stacks: all of the model. others: the edits for those whose turn came before."""

    builder: Builder
    stack: Stack
    stacks: Sequence[Stack]
    others: Edits

    def find(self, number: int | None, where: str) -> tuple[_Choice | None, _Problem]:
        """The first faithful candidate, or None and the problem of the first candidate.

        One in which numbers that are computed from a layer's place stay what they were is preferred to those before it.
        """
        full, beside = self.builder.full, [s for s in self.stacks if s is not self.stack]
        taps = max((len(value_at(full, path)) for s in beside for path in s.tap_lists), default=0)
        first: _Choice | None = None
        why = _FAITHFUL
        left = _CANDIDATES_AFTER_A_FAITHFUL_ONE
        for keep, lists in candidates(self.stack, number, where, max(LEAST, taps)):
            choice, problem = self._try(keep, lists, rules=where != "kinds")
            if choice is not None and not choice.is_moved:
                return choice, _FAITHFUL
            first, why = first or choice, why if why.words else problem
            left -= first is not None
            if not left:
                break
        return first, why

    def _try(self, keep: Sequence[int], lists: Sequence[Any], *, rules: bool) -> tuple[_Choice | None, _Problem]:
        builder, stack = self.builder, self.stack
        before = builder.anatomy(changed(builder.full, self.others))
        assert isinstance(before, Anatomy)
        leaves = [s.group.leaf for s in self.stacks]
        why = _FAITHFUL
        for extra in further_edits(builder, stack, keep, leaves, rules=rules):
            edits = edits_for(builder, stack.group, keep, lists, [*stack.kind_lists, *stack.tap_lists]) | extra
            edits |= {p: v for p, v in followers(builder, stack.group, edits).items() if p not in leaves}
            found = builder.anatomy(changed(builder.full, self.others | edits))
            problem = _problem(before, found, stack, keep)
            words = (
                _problem_of_edits(stack, keep, edits, self.others)
                or problem.words
                or _problem_beside(before, found, stack, self.stacks)
            )
            if not words:
                assert isinstance(found, Anatomy)
                moved = numbers_that_moved(builder.whole, found, stack, keep)
                return _Choice(list(keep), edits, any(moved.values())), _FAITHFUL
            why = why if why.words else replace(problem, words=words)
        return None, why


@dataclass(frozen=True)
class _Choice:
    """Layers of a stack that are kept, and the edits for them. is_moved: a number that a layer's place decides is
    another in one of them."""

    kept: list[int]
    edits: Edits
    is_moved: bool


@dataclass(frozen=True)
class _Problem:
    """Why a candidate is not faithful; empty if it is. differs: what is another in a layer, if that is why. is_absent:
    one of the two layers does not have it at all."""

    words: str
    differs: tuple[str, str] | None = None
    is_absent: bool = False


_FAITHFUL = _Problem("")


def _problem_of_edits(stack: Stack, keep: Sequence[int], edits: Edits, others: Edits) -> str:
    left = edits[stack.group.counts] if stack.group.counts is not None else ()
    if left and list(keep) != sorted(keep):
        return "its layers lie in stages, which have an order"
    if 0 in left:
        return f"stage {left.index(0)} would have no layer"
    twice = next((dotted(p) for p, value in edits.items() if others.get(p, value) != value), "")
    return f"{twice} names layers of another stack, too" if twice else ""


def _refusal(search: _Search, problem: _Problem, auto: _Choice | None) -> tuple[str, str]:
    """What was refused and why, and what to do. auto: what `--layers auto` would keep."""
    stack = search.stack
    fields = ", ".join(dotted(path) for path in _fields_behind(search, problem))
    told = f"; it follows from {fields}, and no value was found with which the layers are what they were"
    remedy = "Try other layers with --keep, or leave this stack whole with --stack."
    if auto is not None:
        remedy = f"Use --layers auto, which keeps {fold_ranks(auto.kept)}, or leave this stack whole with --stack."
    words = (
        f"{stack.name} cannot be shrunk faithfully by {', '.join(map(dotted, stack.group.drivers))}: {problem.words}"
    )
    return words + (told if fields else ""), remedy


def _fields_behind(search: _Search, problem: _Problem) -> Iterator[Any]:
    """Scalars of the config that decide the attribute that differs: less of one makes it another in a layer.

    If the attribute is absent in one of the two layers, those count that decide which layers have it.
    """
    stack, differs = search.stack, problem.differs
    if differs is None:
        return
    before = stack.prints[stack.name]
    for path, value, _ in rules_of(search.builder, stack, [stack.group.leaf]):
        found = (search.builder.anatomy(changed(search.builder.full, {path: less})) for less in smaller(value))
        after = [
            fingerprints(anatomy, stack.name)
            for anatomy in found
            if isinstance(anatomy, Anatomy) and anatomy.lists.get(stack.name) == stack.group.layers
        ]
        pairs = [(a, b) for layers in after for a, b in zip(before, layers, strict=True)]
        if any((differs in a) != (differs in b) if problem.is_absent else a.get(differs) != b.get(differs)
               for a, b in pairs):  # fmt: skip
            yield path


def _problem(before: Anatomy, found: Anatomy | Exception, stack: Stack, keep: Sequence[int]) -> _Problem:
    """Why this small model's layers are not the full one's.

    `before`: the model as it was when this stack's turn came; what is in no layer of the stack is compared with that.
    """
    if isinstance(found, Exception):
        text = " ".join(str(found).split())
        return _Problem(f"{type(found).__name__}: {first_words(text, 200)}")
    lost = set(stack.kinds) > {stack.kinds[i] for i in keep}
    problem = _problem_inside(found, stack, keep)
    return problem if problem.words else _Problem(_problem_outside(before, found, stack, len(keep), lost=lost))


def _problem_inside(found: Anatomy, stack: Stack, keep: Sequence[int]) -> _Problem:
    for path in stack.group.stacks:
        if found.lists.get(path) != len(keep):
            return _Problem(f"{path} has {found.lists.get(path)} layers where {len(keep)} were asked for")
        for new, layer in enumerate(fingerprints(found, path)):
            off = same(stack.prints[path], layer, stack.numbers[path], keep, new)
            if off:
                name, old = ".".join(part for part in off[0] if part), stack.prints[path][keep[new]]
                values = f"{name} would be {layer.get(off[0], 'absent')}, and is {old.get(off[0], 'absent')} in it"
                words = f"layer {new} would not be what layer {keep[new]} is: {values}"
                return _Problem(words, off[0], (off[0] in layer) != (off[0] in old))
    return _FAITHFUL


def _problem_outside(before: Anatomy, found: Anatomy, stack: Stack, left: int, *, lost: bool) -> str:
    """The same for what is in no layer of the stack: all of it is there, and as large as it was.

    Lists with an entry a layer become shorter with the stack. Where a kind of layers is `lost` on request, what served
    that kind alone may go with it.
    """
    layers = stack.group.layers
    moved = {p for p, n in before.lists.items() if is_resized((n,), (found.lists.get(p, 0),), layers, left)}
    after = found.outside(frozenset())
    for name, shape in before.outside(frozenset({*moved, *stack.group.stacks})).items():
        if name not in after:
            if lost:
                continue
            return f"{name} would be missing"
        new = after[name]
        if new != shape and not is_resized(shape, new, layers, left):
            return f"{name} would have the shape {new} and not {shape}"
    return ""


def _problem_beside(before: Anatomy, found: Anatomy | Exception, stack: Stack, stacks: Sequence[Stack]) -> str:
    """A list beside the leaf may be as long as the stack and count the layers of another (EfficientLoFTR's stages)."""
    for path in (p for other in stacks if other is not stack for p in other.group.stacks):
        if not isinstance(found, Exception) and found.lists.get(path) != before.lists[path]:
            return f"{path} would have {found.lists.get(path)} layers and not {before.lists[path]}"
    return ""


def _number_for(stack: Stack, wanted: WantedLayers) -> int | None:
    for name, count in wanted.stacks.items():
        if answers_to(stack, name):
            return count
    return wanted.layers


def answers_to(stack: Stack, name: str) -> bool:
    """A stack is named by its path, by parts of it, or by the section of the config that counts it."""
    words = {part for path in stack.group.stacks for part in (*path.split("."), *path.replace("_", ".").split("."))}
    words |= {word for part in stack.group.section for word in (str(part), str(part).removesuffix("_config"))}
    if stack.group.leaf is not None:
        words |= set(str(stack.group.leaf[-1]).split("_")) | {dotted(stack.group.leaf)}
    return name in words or name in stack.group.stacks


def _refuse_unknown(stacks: list[Stack], wanted: WantedLayers) -> None:
    names = ", ".join(s.name for s in stacks)
    for name, number in wanted.stacks.items():
        found = [s for s in stacks if answers_to(s, name)]
        if len(found) != 1:
            many = f"{len(found)} stacks answer to it" if found else "no stack answers to it"
            raise UsageError(f"--stack {name}={number}: {many}", f"The stacks are: {names}.")
    asked = {s.name: _number_for(s, wanted) for s in stacks}
    largest = max(s.group.layers for s in stacks)
    if wanted.layers is not None and not wanted.stacks and wanted.layers > largest:
        raise UsageError(f"--layers {wanted.layers}: the longest stack has {largest} layers", f"Give 1 to {largest}.")
    for stack in stacks:
        asked_for = asked[stack.name]
        named = any(answers_to(stack, name) for name in wanted.stacks)
        if asked_for is not None and (asked_for < 1 or (named and asked_for > stack.group.layers)):
            many = f"{asked_for} layers of {stack.name} are wanted; it has {stack.group.layers}"
            raise UsageError(many, f"Give 1 to {stack.group.layers}.")


def _lost_kinds(stack: Stack) -> Iterator[str]:
    for kind in sorted(set(stack.kinds) - {stack.kinds[i] for i in stack.kept}):
        layers = [i for i, k in enumerate(stack.kinds) if k == kind]
        shown = ", ".join(map(str, layers[:6])) + (", …" if len(layers) > 6 else "")
        yield f"{stack.name}: the kind of layers {shown} is not kept; --layers auto keeps one of each kind"
