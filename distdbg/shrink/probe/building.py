"""Build a config's model on torch's meta device, and measure what a probe needs of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from textwrap import shorten
from typing import Any

from distdbg.errors import EvidenceUnreadable, Refused
from distdbg.model import grouped
from distdbg.shrink.checkpoint.config_file import CONFIG, COUNTS
from distdbg.shrink.checkpoint.config_leaves import Config, dotted, integers
from distdbg.shrink.checkpoint.layer_names import numbered_prefixes

#: of one model: the largest that are published have fewer than half of them
MAX_MODULES = 250_000
#: of all models that are built for one search, which take some minutes
MAX_MODULES_BUILT = 10_000_000
#: of a model, for each tensor in its checkpoint: one stored tensor may be loaded into the parameters of many experts
MAX_PARAMETERS_PER_TENSOR = 100
#: near the standard deviation with which models initialise their weights
_CONSTANT_WEIGHT = 0.02
#: the largest size of torch
_MAX_SIZE = 2**63 - 1
Shape = tuple[int, ...]
#: a module's class and its plain attributes
Facts = tuple[str, tuple[tuple[str, Any], ...]]

_EXCEPTION_NAMES = re.compile(r"\b\w*(?:Error|Exception): ?")
#: A type in a library's message, as Python prints it
_TYPE = re.compile(r"<class '(?:\w+\.)*(\w+)'>")


@dataclass(frozen=True)
class Anatomy:
    """What a model built from a config consists of.

    lists: path of each ModuleList or Sequential -> number of its children.
    tensors: parameter or buffer name -> shape. modules: path -> class and plain attributes (None, bool, int, str).
    numbers: (module path, attribute) -> float. tied: names of one parameter, where it has several.
    """

    lists: dict[str, int]
    tensors: dict[str, tuple[Shape, int]]
    modules: dict[str, Facts]
    numbers: dict[tuple[str, str], float] = field(default_factory=dict)
    parameters: frozenset[str] = frozenset()
    tied: tuple[tuple[str, ...], ...] = ()

    def outside(self, lists: frozenset[str]) -> dict[str, Shape]:
        """Tensors that are in none of these lists."""
        inside = tuple(f"{path}." for path in lists)
        return {name: shape for name, (shape, _) in self.tensors.items() if not name.startswith(inside)}


class TooManyModulesError(Exception):
    """A model has more modules than any that is published, or more parameters than its checkpoint can have."""


class Builder:
    """Builds configs of one type, remembering what each consists of.

    stored: the number of tensors in the checkpoint, which bounds the size of the model; None if there is none.
    """

    def __init__(self, config: Any, model_class: Any, trust: bool = False, stored: int | None = None) -> None:
        self.trust = trust
        self._limit = _Limit(None if stored is None else (stored + 1) * MAX_PARAMETERS_PER_TENSOR)
        self.config_class = type(config)
        self.model_class = model_class
        self.full: Config = json_values(config)
        self.builds = 0
        self._known: dict[str, Anatomy | Exception] = {}

    def config(self, values: Config) -> Any:
        return self.config_class.from_dict(json.loads(json.dumps(values)))

    def model(self, values: Config) -> Any:
        """The model on meta. Raises what the config or the model raises."""
        import torch

        self.builds += 1
        with torch.device("meta"), torch.no_grad(), self._limit.kept():
            return self._made(self.config(values))

    def _made(self, config: Any) -> Any:
        if hasattr(self.model_class, "from_config"):
            return self.model_class.from_config(config, trust_remote_code=self.trust)
        return self.model_class._from_config(config)

    def with_random_weights(self, dtype: Any = None) -> Any:
        """The full config's model as its own initialisation makes it, in the config's own dtype by default."""
        import torch

        torch.manual_seed(0)
        config = self.config(self.full)
        if dtype is not None:
            config.dtype = dtype
        return self._made(config)

    def without_weights(self, dtype: Any, values: Config | None = None) -> Any:
        """The model with parameters on meta, and its buffers as the constructor makes them; the full one by default."""
        import torch
        from torch.nn.modules.module import register_module_parameter_registration_hook

        def to_meta(_module: Any, _name: str, parameter: Any) -> Any:
            if parameter is None or parameter.is_meta:
                return None
            return torch.nn.Parameter(parameter.detach().to("meta"), parameter.requires_grad)

        config = self.config(self.full if values is None else values)
        config.dtype = dtype
        handle = register_module_parameter_registration_hook(to_meta)
        try:
            with torch.no_grad(), self._limit.kept():
                return self._made(config)
        finally:
            handle.remove()

    def with_constant_weights(self, values: Config) -> Any:
        """The model, to be run once: all its parameters are parts of one tensor, as large as the largest of them."""
        import torch

        model = self.without_weights(torch.float32, values).eval()
        constants = torch.full((max((p.numel() for p in model.parameters()), default=0),), _CONSTANT_WEIGHT)
        for module in model.modules():
            for name, parameter in module._parameters.items():
                if parameter is not None and parameter.is_meta:
                    part = constants[: parameter.numel()].view(parameter.shape).to(parameter.dtype)
                    module._parameters[name] = torch.nn.Parameter(part, requires_grad=False)
        return model

    @cached_property
    def bare(self) -> Any:
        """The full config's model on meta, for its names and its signature: nobody may run or change it."""
        return self.model(self.full)

    @property
    def whole(self) -> Anatomy:
        """What the full config gives. Raises what that is refused with: then there is nothing to probe."""
        found = self.anatomy(self.full)
        if isinstance(found, Exception):
            raise found
        return found

    def anatomy(self, values: Config) -> Anatomy | Exception:
        """What the config gives, or the exception that it is refused with."""
        key = json.dumps(values, sort_keys=True)
        if key not in self._known:
            try:
                self._known[key] = examine(self.model(values))
            except Refused:
                raise
            except Exception as error:  # whatever a model's own code raises is the answer
                self._known[key] = error
        return self._known[key]


def json_values(config: Any) -> Config:
    """As the config would write itself; a type of torch by its name, which is what a config can be made of again."""
    values: Config = json.loads(json.dumps(config.to_dict(), default=lambda one: str(one).removeprefix("torch.")))
    return values


class _Limit:
    """Bounds what is built: a config that asks for a billion layers would fill the memory, meta device or not."""

    def __init__(self, parameters: int | None) -> None:
        self._parameters = parameters
        self._built = 0

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Raises TooManyModulesError if one model is too large, Refused if all of them together are."""
        from torch.nn.modules.module import (
            register_module_module_registration_hook,
            register_module_parameter_registration_hook,
        )

        modules = parameters = 0

        def count_module(*_: Any) -> None:
            nonlocal modules
            modules += 1
            self._built += 1
            if modules > MAX_MODULES:
                raise TooManyModulesError(f"it is made of more than {MAX_MODULES:,} modules")
            if self._built > MAX_MODULES_BUILT:
                raise Refused(
                    f"what counts the layers was not found in models of {MAX_MODULES_BUILT:,} modules in all",
                    "Use a config with fewer layers.",
                )

        def count_parameter(*_: Any) -> None:
            nonlocal parameters
            parameters += 1
            if self._parameters is not None and parameters > self._parameters:
                raise TooManyModulesError(f"it has more than {self._parameters:,} parameter tensors")

        handles = [register_module_module_registration_hook(count_module),
                   register_module_parameter_registration_hook(count_parameter)]  # fmt: skip
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


def examine(model: Any) -> Anatomy:
    from torch import nn

    lists: dict[str, int] = {}
    modules: dict[str, Facts] = {}
    numbers: dict[tuple[str, str], float] = {}
    for path, module in model.named_modules():
        children = dict(module.named_children())
        numbered = list(children) == [str(i) for i in range(len(children))]
        if isinstance(module, nn.ModuleList | nn.Sequential) and numbered:
            lists[path] = len(children)
        own = sorted((k, v) for k, v in vars(module).items() if not k.startswith("_") and k != "training")
        plain = tuple((k, v) for k, v in own if v is None or isinstance(v, bool | int | str))
        modules[path] = (type(module).__name__, plain)
        numbers.update({(path, k): v for k, v in vars(module).items() if isinstance(v, float)})
    held = (*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False))
    tensors = {n: (tuple(t.shape), t.element_size()) for n, t in held}
    names = grouped((id(parameter), name) for name, parameter in model.named_parameters(remove_duplicate=False))
    parameters = frozenset(n for alike in names.values() for n in alike)
    tied = tuple(tuple(alike) for alike in names.values() if len(alike) > 1)
    return Anatomy(lists, tensors, modules, numbers, parameters, tied)


def open_builder(folder: str, trust: bool, architecture: str | None = None, stored: Sequence[str] = ()) -> Builder:
    """A builder for the model whose config.json lies in `folder`. stored: names of the checkpoint's tensors.

    Raises EvidenceUnreadable where that is no model's config, Refused where it cannot be built.
    """
    import transformers

    try:
        config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=trust, local_files_only=True)
    except Exception as error:
        raise EvidenceUnreadable(
            f"config.json is not a model's config for transformers {transformers.__version__}: {reason(error)}",
            "Check its model_type, or install the transformers version that the model names.",
        ) from None
    builder = Builder(config, model_class(config, architecture, trust), trust, len(stored) or None)
    found = builder.anatomy(builder.full)
    if isinstance(found, Exception):
        why = _why_not_built(builder.full, found, stored)
        raise Refused(f"the model cannot be built from its own config: {why}", f"Correct {CONFIG} first.")
    return builder


def _why_not_built(config: Config, error: Exception, stored: Sequence[str]) -> str:
    large = next(((path, n) for path, n in integers(config) if abs(n) > _MAX_SIZE), None)
    if large is not None:
        return f"{dotted(large[0])} is {large[1]}, and torch's largest size is {_MAX_SIZE}"
    counts = [(n, path) for path, n in integers(config) if path[-1] in COUNTS]
    if not isinstance(error, TooManyModulesError) or not stored or not counts:
        return reason(error)
    count, field_path = max(counts)
    lists = numbered_prefixes(stored)
    words = f"{reason(error)}: {dotted(field_path)} is {count}, and the checkpoint has {len(stored)} tensors"
    # experts are numbered inside of layers: the outermost list counts
    outer = min(lists, key=lambda path: (path.count("."), -len(lists[path])), default=None)
    return f"{words}, of {len(lists[outer])} layers ({outer!r})" if outer is not None else words


def model_class(config: Any, architecture: str | None, trust: bool) -> Any:
    """The class that the config names; else the first Auto class that knows the config, those with a loss first."""
    import transformers

    named = [architecture] if architecture else list(config.architectures or [])
    for name in named:
        if hasattr(transformers, name):
            return getattr(transformers, name)
    remote = getattr(config, "auto_map", None) or {}
    order = ["CausalLM", "MaskedLM", "CTC", "ImageClassification"]
    whole = ["ImageTextToText", "Seq2SeqLM", "SpeechSeq2Seq"]
    # Some types have a class for their decoder alone beside the one for all of it.
    composed = getattr(config, "is_encoder_decoder", False) or getattr(config, "sub_configs", None)
    order = [*whole, *order] if composed else [*order, *whole]
    autos = [f"AutoModelFor{o}" for o in order] + ["AutoModel"]
    # A class of another type may serve this one, too, and not know how its checkpoints name things.
    for own in (True, False):
        for name in autos:
            auto = getattr(transformers, name)
            if (trust and name in remote) or _serves(auto, config, own=own):
                return auto
    for name, auto in vars(transformers).items():
        if name.startswith("AutoModelFor") and type(config) in getattr(auto, "_model_mapping", ()):
            return auto
    raise Refused(f"transformers has no model class for the type {config.model_type!r}", "Name one in 'architectures'.")


def _serves(auto: Any, config: Any, *, own: bool) -> bool:
    """Whether an Auto class knows the config; own: and has a class for it that was made for this type."""
    if type(config) not in auto._model_mapping:
        return False
    known = auto._model_mapping[type(config)]
    classes = known if isinstance(known, tuple | list) else (known,)
    return not own or any(getattr(c, "config_class", None) is type(config) for c in classes)


def brief(error: BaseException) -> str:
    """An exception on one line, without the C++ frames that torch adds."""
    text = str(error).partition("Exception raised from ")[0]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f"{type(error).__name__}: {shorten(' '.join(lines[:3]), 300, placeholder=' …')}"


def in_short(error: BaseException) -> str:
    """The first sentence of what an exception says, for a check that was not made."""
    text = " ".join(str(error).split())
    first = re.split(r"[.:;!?] |\s[([{]", text, maxsplit=1)[0] or type(error).__name__
    return f"{type(error).__name__}: {shorten(first, 90, placeholder=' …')}" if text else first


def reason(error: BaseException) -> str:
    """What a library says about a config, in the words of JSON and without the names of Python's exceptions."""
    if isinstance(error, (LookupError, AttributeError)):
        return "transformers fails on its values"
    return _EXCEPTION_NAMES.sub("", _TYPE.sub(r"\1", brief(error)).replace("NoneType", "null"))
