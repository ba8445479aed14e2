"""A message: a name, typed fields, and what the report does not know where it reports a failure of distdbg.

No dataclasses and no typing at run time: agents and ranks load this, and both are slow to import.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import Any, ClassVar

    from typing_extensions import Self, dataclass_transform
else:

    def dataclass_transform(**_options: object) -> object:
        return lambda cls: cls


#: The version of the messages below. A kind says in `since` which version brought it.
SCHEMA = 1
_MOST_INTEGER = 2**63
_REQUIRED = object()


def _is_whole(value: object) -> bool:
    return value.__class__ is int and -_MOST_INTEGER <= value < _MOST_INTEGER


def _is_number(value: object) -> bool:
    """True and False are none, nor are NaN and infinity."""
    return (value.__class__ is float or value.__class__ is int) and abs(value) < 1e300


def _nothing() -> None:
    return None


def _empty(kind: str) -> Callable[[], Any] | None:
    """None where a value cannot be empty: a number."""
    if kind.endswith(" | None") or kind == "object":
        return _nothing
    made: dict[str, Callable[[], Any]] = {"str": str, "Sequence": list, "Mapping": dict}
    return made.get(kind.partition("[")[0])


_CHECKS: dict[str, Callable[[object], bool]] = {
    "object": lambda _value: True,
    "int": _is_whole,
    "float": _is_number,
    "bool": lambda value: isinstance(value, bool),
    "str": lambda value: isinstance(value, str),
    "Sequence": lambda value: isinstance(value, list),
    "Mapping": lambda value: isinstance(value, dict),
}


#: What the items of a list, or the values of an object, may be. Names of numbers are text in JSON.
_ITEM_CHECKS: dict[str, Callable[[object], bool]] = {
    "int": _is_whole,
    "str": _CHECKS["str"],
    "str | None": lambda value: value is None or isinstance(value, str),
    "Mapping[str, object]": _CHECKS["Mapping"],
    "Sequence[object]": _CHECKS["Sequence"],
}


def _check_of(kind: str) -> Callable[[object], bool]:
    """Whether a value is of an annotation's type, with its items."""
    name, _, inner = kind.removesuffix(" | None").partition("[")
    of_items = _ITEM_CHECKS.get(inner[:-1].removeprefix("str, ").removeprefix("int, "))
    if of_items is None:
        return _CHECKS[name]
    if name == "Sequence":
        return lambda value: isinstance(value, list) and all(map(of_items, value))
    return lambda value: isinstance(value, dict) and all(map(of_items, value.values()))


class Lost:
    """`what` is not known, `because`. `decisive`: without it "nothing found" cannot be trusted."""

    __slots__ = ("because", "decisive", "what")

    def __init__(self, what: str, because: str, *, decisive: bool = False) -> None:
        self.what, self.because, self.decisive = what, because, decisive


class Spec:
    """The properties of a kind: who writes it (`by`), and since which version of the messages.

    A kind that reports a failure of distdbg has `lost` and `because`, templates of its fields. With `only_if` a record
    is a failure only where that field is not empty. `decisive`: without it "nothing found" cannot be trusted.
    """

    __slots__ = ("because", "by", "decisive", "lost", "name", "only_if", "since")

    def __init__(
        self, name: str, *, by: str, since: int = SCHEMA, lost: str = "", because: str = "", only_if: str = "",
        decisive: bool = False,
    ) -> None:  # fmt: skip
        self.name, self.by, self.since = name, by, since
        self.lost, self.because, self.only_if, self.decisive = lost, because, only_if, decisive


class Unreadable(ValueError):
    """A number that the message needs is missing or of another type."""


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Message:
    """A subclass is one kind: its annotations are the fields of the record, in their order.

    A field with a default is written where it was given. `more` stands for the fields that are not listed.
    The keywords of the class are those of Spec.
    """

    spec: ClassVar[Spec]
    types: ClassVar[dict[str, str]] = {}
    #: of each field: its name, whether a value is of its type, what makes an empty value of it, its default
    _plan: ClassVar[tuple[tuple[str, Callable[[object], bool], Callable[[], Any] | None, Any], ...]] = ()
    #: where a record has its name
    key: ClassVar[str] = ""
    #: the kinds by name; Event, Fact and Op have one each
    kinds: ClassVar[dict[str, type[Message]]] = {}

    def __init_subclass__(cls, *, name: str = "", **spec: Any) -> None:  # noqa: ANN401
        if not name:
            cls.kinds = {}
            return
        cls.spec, cls.types = Spec(name, **spec), dict(cls.__annotations__)
        cls._plan = tuple(
            (field, _check_of(kind), _empty(kind), cls._default(field))
            for field, kind in cls.types.items()
            if field != "more"
        )
        if name in cls.kinds:
            raise TypeError(f"{name} is registered twice")
        cls.kinds[name] = cls

    def __init__(self, **fields: Any) -> None:  # noqa: ANN401
        if unknown := fields.keys() - self.types.keys():
            raise TypeError(f"{self.spec.name} has no field {', '.join(sorted(unknown))}")
        for name in self.types.keys() - fields.keys():
            if self._default(name) is _REQUIRED:
                raise TypeError(f"{self.spec.name} has no {name}")
        self.__dict__.update(fields)

    @classmethod
    def _default(cls, name: str) -> Any:  # noqa: ANN401
        return cls.__dict__.get(name, _REQUIRED)

    @classmethod
    def is_open(cls) -> bool:
        """Whether the record has fields that are not listed."""
        return "more" in cls.types

    def fields(self) -> dict[str, Any]:
        """The record's fields, without its time and name."""
        given = self.__dict__
        found = {name: given[name] for name in self.types if name in given and name != "more"}
        return {**found, **given.get("more", {})}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        """A field of another type counts as missing. A missing text or list is empty.

        Raises Unreadable where a number without a default is missing.
        """
        message = cls.__new__(cls)
        # Not message.__dict__: a dictionary of its own takes four times the memory, and a dump has 400,000 messages.
        for name, is_one, empty, default in cls._plan:
            value = record.get(name)
            if value is not None and is_one(value):
                setattr(message, name, value)
            elif default is _REQUIRED:
                if empty is None:
                    raise Unreadable(f"{cls.spec.name} without {name}")
                setattr(message, name, empty())
        if cls.is_open():
            setattr(message, "more", {name: value for name, value in record.items() if name not in cls.types})  # noqa: B010
        return message

    @property
    def t(self) -> float | None:
        """When it was written, in epoch seconds; None where it was not read, or the record does not say."""
        return self.__dict__.get("written")

    @classmethod
    def among(cls, lines: Iterable[tuple[int, Mapping[str, Any]]]) -> Iterator[tuple[int, Self]]:
        """Those of this kind that can be read, each with its line."""
        key, name = cls.key, cls.spec.name
        for line, record in lines:
            if record.get(key) == name:
                try:
                    message = cls.from_record(record)
                except Unreadable:
                    continue
                t = record.get("t")
                message.__dict__["written"] = float(t) if t is not None and _is_number(t) else None
                yield line, message

    @classmethod
    def newest(cls, lines: Sequence[tuple[int, Mapping[str, Any]]]) -> Self | None:
        """The last of this kind that can be read."""
        return next((message for _, message in cls.among(reversed(lines))), None)

    @classmethod
    def last_line(cls, lines: Sequence[tuple[int, Mapping[str, Any]]]) -> int | None:
        """The line of the newest one, readable or not."""
        key, name = cls.key, cls.spec.name
        return next((line for line, record in reversed(lines) if record.get(key) == name), None)

    @classmethod
    def is_in(cls, lines: Iterable[tuple[int, Mapping[str, Any]]]) -> bool:
        """Whether there is one, readable or not."""
        key, name = cls.key, cls.spec.name
        return any(record.get(key) == name for _, record in lines)

    @classmethod
    def is_failure(cls, record: Mapping[str, Any]) -> bool:
        """Whether a record of this kind reports a failure of distdbg."""
        return bool(cls.spec.lost) and (not cls.spec.only_if or bool(record.get(cls.spec.only_if)))

    def filled(self, template: str) -> str:
        """A sentence of `spec` with the values of this message."""
        values = {name: getattr(self, name) for name in self.types}
        shown = {name: _shown(value) for name, value in values.items() if not isinstance(value, (dict, list))}
        return template.format_map(shown)


class Event(Message):
    """A line of events.jsonl."""

    key = "event"

    def record(self, t: float) -> dict[str, Any]:
        """The line's object; `t` is epoch seconds."""
        return {"t": t, "event": self.spec.name, **self.fields()}


class Fact(Message):
    """A line of facts.jsonl with the op `fact` and a kind."""

    key = "kind"


class RankMessage(Message):
    """A message of a rank with an op of its own."""

    key = "op"


def failure(kind: type[Message] | None, record: Mapping[str, Any]) -> Lost | None:
    """What the report does not know because of this record; None where it reports no failure."""
    if kind is None or not kind.is_failure(record):
        return None
    try:
        message = kind.from_record(record)
    except Unreadable as error:
        return Lost(f"what failed in distdbg ({kind.spec.name})", str(error), decisive=kind.spec.decisive)
    return Lost(message.filled(kind.spec.lost), message.filled(kind.spec.because), decisive=kind.spec.decisive)


def _shown(value: object) -> str:
    return ("" if value is None else str(value)) or "(not recorded)"
