"""Compute the new names of a checkpoint's tensors, where the checkpoint names them otherwise than the model does.

`modules` says which tensor of the model each stored tensor is loaded into. The number in a stored name that is the
layer's is the one that changes with the layer's number in the model's name, in all names that differ in numbers alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from distdbg.errors import Refused
from distdbg.shrink.checkpoint.layer_names import NUMBER, all_renumbered, number_of, renumbered

Kept = Mapping[str, Sequence[int]]
#: stored names whose numbers alone differ, as the numbers of the model's names do
Group = list[str]


@dataclass
class NewNames:
    """new: stored name -> its names in the small checkpoint, none where its layer is not kept, several where that is
    kept several times. prefixes: path of a list in the model -> what comes before its number in the checkpoint. layers:
    path -> the numbers that were seen."""

    new: dict[str, list[str]] = field(default_factory=dict)
    prefixes: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    layers: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))


def new_names(modules: Mapping[str, str], kept: Kept, tied: Iterable[Sequence[str]] = ()) -> NewNames:
    """`kept`: path of a list in the model -> numbers to keep. `tied`: names of one tensor, of which one is stored.

    Raises Refused where the layer's number in a stored name is not known, or two tensors would get one name.
    """
    found = NewNames()
    aliases = {name: names for names in tied for name in names}
    groups: dict[tuple[str, str], Group] = defaultdict(list)
    for stored, module in modules.items():
        groups[_template(stored), _template(module)].append(stored)
        for path, _, number in _counted(module, kept):
            found.layers[path].add(number)
    there, about = set(modules.values()), (modules, kept, found)
    unclear = []
    for group in groups.values():
        for stored in group:
            represented = _represented(modules[stored], kept, aliases, there)
            if represented is None:
                found.new[stored] = []
            elif not _rename(stored, represented, group, about):
                unclear.append((stored, represented, group))
    for stored, represented, group in unclear:  # the prefixes of the others are known now
        if not _rename(stored, represented, group, about):
            raise Refused(
                f"which number in {stored!r} is the layer's is not known: the model has it as {modules[stored]!r}",
                "Use --random to shrink the model without its weights.",
            )
    _refuse_one_name_for_two(found.new)
    return found


def _represented(module: str, kept: Kept, aliases: Mapping[str, Sequence[str]], stored: Collection[str]) -> str | None:
    """The tensor's name in the full model, or another name of it where that one's layer is kept and its own is not."""
    if renumbered(module, kept) is not None:
        return module
    staying = [name for name in aliases.get(module, ()) if renumbered(name, kept) is not None]
    return staying[0] if staying and not set(staying) & {*stored} else None


def _rename(stored: str, represented: str, group: Group, about: tuple[Mapping[str, str], Kept, NewNames]) -> bool:
    """Set a tensor's new name; False where it is not clear which number is the layer's."""
    modules, kept, found = about
    module, targets = modules[stored], all_renumbered(represented, kept)
    if _template(module) != _template(represented):
        found.new[stored] = targets
        return True
    if targets == [module]:
        found.new[stored] = [stored]  # whichever number it is, it stays
    here, before = _numbers(stored), _numbers(module)
    places = {at: _layer_places(stored, modules, group, at, found.prefixes[path])
              for path, at, _ in _counted(represented, kept)}  # fmt: skip
    if not all(places.values()):
        return stored in found.new
    for path, at, _ in _counted(represented, kept):
        found.prefixes[path] |= {_prefix(stored, place) for place in places[at]}
    names: list[str] = []
    for target in targets:
        numbers, after = list(here), _numbers(target)
        for at, those in places.items():
            for place in those:
                numbers[place] = here[place] + after[at] - before[at]
        names.append(_with_numbers(stored, numbers))
    found.new[stored] = names
    return True


def _layer_places(
    stored: str, modules: Mapping[str, str], group: Group, at: int, prefixes: Collection[str]
) -> list[int]:
    """Which numbers of a stored name are the one at `at` in the model's; none where that is not clear."""
    places = _places(modules, group, at)
    if len(places) < 2 or len({_numbers(modules[name])[at] for name in group}) > 1:
        return places
    if _numbers(stored) == _numbers(modules[stored]):
        return [at]
    known = [place for place in places if _prefix(stored, place) in prefixes]
    return known if len(known) == 1 else []


def _counted(module: str, kept: Kept) -> Iterator[tuple[str, int, int]]:
    """(path of the list, which of the numbers in the name, the number) for each number that a list counts."""
    parts = module.split(".")
    for at in range(1, len(parts)):
        path = ".".join(parts[:at])
        if path in kept and (number := number_of(parts[at])) is not None:
            yield path, len(NUMBER.findall(path)), number


def _places(modules: Mapping[str, str], group: Group, at: int) -> list[int]:
    """Which numbers of the stored names differ by the same amount from the one at `at` in the model's, everywhere."""
    rows = [(_numbers(stored), _numbers(modules[stored])[at]) for stored in group]
    return [p for p in range(len(rows[0][0])) if len({numbers[p] - value for numbers, value in rows}) == 1]


def _template(name: str) -> str:
    return NUMBER.sub("#", name)


def _numbers(name: str) -> list[int]:
    return [int(text) for text in NUMBER.findall(name)]


def _with_numbers(name: str, numbers: Sequence[int]) -> str:
    following = iter(numbers)
    return NUMBER.sub(lambda _: str(next(following)), name)


def _prefix(name: str, place: int) -> str:
    """What comes before one of the numbers of a name."""
    starts = [match.start() for match in NUMBER.finditer(name)]
    return name[: starts[place]].removesuffix(".")


def _refuse_one_name_for_two(new: Mapping[str, list[str]]) -> None:
    seen: dict[str, str] = {}
    for stored, name in ((stored, name) for stored, names in new.items() for name in names):
        if seen.setdefault(name, stored) != stored:
            raise Refused(
                f"{seen[name]!r} and {stored!r} of the checkpoint would both be called {name!r}",
                "Use --random to shrink the model without its weights.",
            )
