"""Compute values of tensors without data, as far as they follow from real ones.

Models read sizes, masks and places from tensors and go by what they find. Whatever is made of real tensors alone (ids,
sizes of images, a mask; an `arange`) is computed for real, too, beside its counterpart on meta, or among fake tensors;
what a parameter has had a part in holds nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cache
from typing import Any, Protocol

from distdbg.shrink.checkpoint.config_leaves import Config
from distdbg.shrink.probe.building import Builder
from distdbg.shrink.verify.repeated import PLAIN, Fakes, OnMeta, repeated


class Ground(Protocol):
    """The kind of tensor that holds nothing."""

    #: where it says it is
    device: str

    def is_empty(self, tensor: Any) -> bool: ...

    def emptied(self, tensor: Any) -> Any:
        """Its counterpart that holds nothing."""

    def leaves_alone(self, tensors: list[Any], asked: str | None) -> bool:
        """Is what is made of these tensors, all of known content, a real one? `asked`: the device it shall be on."""

    def really(self) -> AbstractContextManager[Any]:
        """A context in which functions return real tensors."""

    def unknown(self, function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """What the function gives of tensors that all hold nothing. Raises what it raises."""


class Meta:
    device = "meta"

    def __init__(self) -> None:
        self._made = OnMeta()

    def is_empty(self, tensor: Any) -> bool:
        return bool(tensor.is_meta)

    def emptied(self, tensor: Any) -> Any:
        return tensor.to("meta")

    def leaves_alone(self, tensors: list[Any], asked: str | None) -> bool:
        return asked == "cpu" or not (asked or any(t.is_meta for t in tensors))

    def really(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def unknown(self, function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        return repeated(function, args, kwargs, self._made)


class Fake:
    """While `mode`, a FakeTensorMode, is on."""

    device = "cpu"

    def __init__(self, mode: Any) -> None:
        from torch._subclasses import FakeTensor

        self._mode, self._kind, self._made = mode, FakeTensor, Fakes(mode)

    def is_empty(self, tensor: Any) -> bool:
        return isinstance(tensor, self._kind)

    def emptied(self, tensor: Any) -> Any:
        from torch.utils._python_dispatch import is_traceable_wrapper_subclass

        held = self.is_empty(tensor) or is_traceable_wrapper_subclass(tensor)
        return tensor if held else self._mode.from_tensor(tensor)

    def leaves_alone(self, tensors: list[Any], asked: str | None) -> bool:  # noqa: ARG002 -- all are on the CPU
        return bool(tensors) and not any(self.is_empty(t) for t in tensors)

    @contextmanager
    def really(self) -> Iterator[None]:
        """Without the mode, and without `vmap`, in which transformers 4 makes masks: it would bring the mode back."""
        from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
        from torch._subclasses.fake_tensor import unset_fake_temporarily

        with unset_fake_temporarily(), temporarily_clear_interpreter_stack():
            yield

    def unknown(self, function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        return repeated(function, args, kwargs, self._made)


Handler = Callable[[Any, Any, dict[str, Any]], Any]
#: elements of the largest tensor that is computed for real
_MOST = 1 << 24
_MOST_OF_A_BUFFER = 1 << 16
#: and of all large tensors of fractions: a mask may follow from an image, nothing follows from angles in every layer
_MOST_FRACTIONS = 1 << 24
_LARGE = 1 << 12
#: what a tensor of this type answers that holds nothing: most questions are whether all is as it should be
_ANSWERS: dict[str, Any] = {"torch.bool": True, "torch.float32": 0.0, "torch.bfloat16": 0.0}
#: what buffers hold that a constructor made: storage -> (storage, content)
_MADE: dict[int, tuple[Any, Any]] = {}


class KnownValues:
    """Storages that hold nothing whose content is known. Both are held, or another storage would get its address."""

    def __init__(self, ground: Ground | None = None, most: int = _MOST) -> None:
        import torch

        aten = torch.ops.aten
        self._ground = ground or Meta()
        self._most = most
        self._fractions = _MOST_FRACTIONS
        self._known: dict[int, tuple[Any, Any]] = {}
        self._asked, self._device = aten._local_scalar_dense, torch.ops.prim.device.default
        self._topk = aten.topk
        #: functions whose second argument may be masks, which say by their content how much is taken
        self._indexed = (aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_)

    def of(self, tensor: Any) -> Any:
        """The tensor with its content; None where that is not known. Views of one storage are views of one content."""
        import torch
        from torch.utils._python_dispatch import is_traceable_wrapper_subclass

        if is_traceable_wrapper_subclass(tensor):  # a DTensor: its parts are elsewhere
            return None
        if not self._ground.is_empty(tensor):
            return tensor if tensor.device.type == "cpu" else None
        content = self._content(tensor)
        if content is None:
            return None
        with self._ground.really():
            view = torch.empty(0, dtype=tensor.dtype, device="cpu")
            return view.set_(content, tensor.storage_offset(), tensor.size(), tensor.stride())

    def alike(self, new: Any, old: Any) -> None:
        """`new` holds what `old` does."""
        content = self._content(old)
        if content is not None:
            self._known[new.untyped_storage()._cdata] = (new.untyped_storage(), content)

    def keep(self, tensor: Any) -> None:
        """What it holds is known to every other one, for as long as the process lasts."""
        key = tensor.untyped_storage()._cdata
        if self._known.get(key, (None, None))[1] is not None:
            _MADE[key] = self._known[key]

    def _content(self, tensor: Any) -> Any:
        key = tensor.untyped_storage()._cdata
        return (self._known.get(key) or _MADE.get(key) or (None, None))[1]

    def call(self, function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """The function's result, and its content where that of all tensors among its arguments is known; a number for
        `.item()`, which is the usual answer where nothing is known. Raises what the function raises."""
        if function is self._device:  # fake tensors are asked at every turn
            return args[0].fake_device if self._ground.is_empty(args[0]) else function(*args)
        if function._overloadpacket is self._asked and self._ground.is_empty(args[0]):
            return self._answer(args[0])
        if function._overloadpacket in self._indexed:
            args = (args[0], [part for mask in args[1] for part in self._places(mask)], *args[2:])
        result = self._called(function, args, kwargs)
        if function._overloadpacket is self._topk and _loops_over_experts():
            self._choose_evenly(result[1], args[0].shape[args[2] if len(args) > 2 else -1])
        return result

    def _choose_evenly(self, indices: Any, size: int) -> None:
        """What a router that nothing is known of has chosen: one after the other. Then a loop over the experts runs."""
        import torch

        if self._ground.is_empty(indices) and self._content(indices) is None:
            with self._ground.really():
                order = torch.arange(indices.numel(), device="cpu") % max(1, size)
                self._remember(indices, order.reshape(indices.shape))

    def _called(self, function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        import torch
        from torch.utils._pytree import tree_map_only

        tensors = tensors_in((args, kwargs))
        asked = _device(kwargs)
        if asked is None and self._is_nothing_to_learn(tensors):  # most calls
            result = self._ground.unknown(function, args, kwargs)
            if function._schema.is_mutable:
                for tensor in tensors:
                    self._forget(tensor)
            return result
        if not tensors and asked in (None, "cpu") and _draws_one_number(function, args):
            with self._ground.really():  # such as whether a layer is left out
                return function(*args, **kwargs)
        contents = {id(t): self.of(t) for t in tensors}
        known = all(c is not None for c in contents.values()) and self._is_plain(function, tensors)

        def really() -> Any:
            real_args, real_kwargs = tree_map_only(torch.Tensor, lambda t: contents[id(t)], (args, kwargs))
            with self._ground.really():
                return function(*real_args, **real_kwargs | ({"device": torch.device("cpu")} if asked else {}))

        if known and self._ground.leaves_alone(tensors, asked):
            return really()
        if known and torch.Tag.dynamic_output_shape in function.tags:
            real = really()
            result = tree_map_only(torch.Tensor, self._ground.emptied, real)
        else:
            # sizes of images stay on the CPU, where they can be read; what is made of them meets nothing here
            empty_args, empty_kwargs = tree_map_only(torch.Tensor, self._ground.emptied, (args, kwargs))
            device = {"device": torch.device(self._ground.device)} if asked else {}
            result = function(*empty_args, **empty_kwargs | device)
            known = known and self._is_small(result) and self._is_affordable(result)
            real = really() if known else None
        if known:
            self._remember(result, real)
        elif function._schema.is_mutable:
            for tensor in tensors:
                self._forget(tensor)  # written to with what is not known
        return result

    def _is_nothing_to_learn(self, tensors: list[Any]) -> bool:
        """All of them hold nothing, and the content of one, or more, is not known."""
        unknown = False
        for tensor in tensors:
            if not self._ground.is_empty(tensor):
                return False
            unknown = unknown or self._content(tensor) is None
        return unknown

    def _answer(self, tensor: Any) -> Any:
        """What `.item()` gives of a tensor of one element."""
        content = self.of(tensor)
        if content is None:
            return _ANSWERS.get(str(tensor.dtype), 0)
        with self._ground.really():
            return content.item()

    def _places(self, mask: Any) -> tuple[Any, ...]:
        """A mask as the indices of what it takes, one tensor a dimension; anything else as it is."""
        import torch

        content = self.of(mask) if mask is not None and mask.dtype is torch.bool else None
        if content is None:
            return (mask,)
        with self._ground.really():
            return tuple(content.nonzero(as_tuple=True))

    def _remember(self, result: Any, real: Any) -> None:
        import torch
        from torch.utils._pytree import tree_leaves

        for empty, content in zip(tree_leaves(result), tree_leaves(real), strict=True):
            if not isinstance(empty, torch.Tensor) or not self._ground.is_empty(empty):
                continue
            storage = empty.untyped_storage()
            if self._content(empty) is not None:  # a view, or written in place: so was its content
                continue
            with self._ground.really():
                held = torch.empty_strided(empty.shape, empty.stride(), dtype=empty.dtype, device="cpu")
                if empty.storage_offset() == 0 and held.untyped_storage().nbytes() == storage.nbytes():
                    self._known[storage._cdata] = (storage, held.copy_(content).untyped_storage())

    def _is_plain(self, function: Any, tensors: list[Any]) -> bool:
        """Neither by chance, nor without content (a buffer for what is gathered), nor of more than is worth it."""
        import torch

        aten = torch.ops.aten
        if function._overloadpacket in (aten.empty, aten.empty_strided, aten.new_empty, aten.new_empty_strided):
            return False
        return torch.Tag.nondeterministic_seeded not in function.tags and self._is_small(tensors)

    def _is_small(self, value: Any) -> bool:
        import torch
        from torch.utils._pytree import tree_leaves

        return all(t.numel() <= self._most for t in tree_leaves(value) if isinstance(t, torch.Tensor))

    def _is_affordable(self, result: Any) -> bool:
        """Whether what was computed for real stays within bounds with this."""
        large = [t.numel() for t in tensors_in(result) if t.numel() > _LARGE and t.is_floating_point()]
        self._fractions -= sum(large)
        return not large or self._fractions >= 0

    def _forget(self, tensor: Any) -> None:
        if self._ground.is_empty(tensor):
            storage = tensor.untyped_storage()
            self._known[storage._cdata] = (storage, None)


def _draws_one_number(function: Any, args: Any) -> bool:
    import torch

    return (
        bool(args) and isinstance(args[0], list) and not args[0] and torch.Tag.nondeterministic_seeded in function.tags
    )


@cache
def _loops_over_experts() -> bool:
    """Whether transformers has no form of experts that does not depend on the router, as before version 5."""
    import transformers

    return not hasattr(transformers.PreTrainedModel, "set_experts_implementation")


def tensors_in(value: Any) -> list[Any]:
    """The tensors among an operator's arguments, in its result, or in a model's output."""
    import torch

    found: list[Any] = []
    _add_tensors((value,), torch.Tensor, found)
    return found


def _add_tensors(values: Iterable[Any], kind: type, found: list[Any]) -> None:
    for value in values:
        if type(value) in PLAIN:  # most are
            continue
        if isinstance(value, kind):
            found.append(value)
        elif isinstance(value, list | tuple):
            _add_tensors(value, kind, found)
        elif isinstance(value, Mapping):
            _add_tensors(value.values(), kind, found)


def operator_mode(call: Handler) -> Any:
    """While it is on, `call(function, args, kwargs)` runs each of torch's operators."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class OperatorMode(TorchDispatchMode):  # type: ignore[misc]
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False  # nothing is compiled here, and to tell torch so at each call takes time

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return call(function, args, kwargs or {})

    return OperatorMode()


def function_mode(call: Handler) -> Any:
    """While it is on, `call(function, args, kwargs)` runs each function of torch's Python interface."""
    from torch.overrides import TorchFunctionMode

    class FunctionMode(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return call(function, args, kwargs or {})

    return FunctionMode()


def _device(kwargs: dict[str, Any]) -> str | None:
    """The kind of device that a function was asked for."""
    asked = kwargs.get("device")
    return None if asked is None else str(asked).partition(":")[0]


def built(make: Callable[[], Any]) -> Any:
    """The model on meta that `make` gives. What its small buffers hold is known from then on, as far as it follows from
    numbers: sizes of kernels, frequencies, tables of distances."""
    import torch

    values = KnownValues(most=_MOST_OF_A_BUFFER)

    def made_on_the_cpu(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """`torch.tensor` of numbers for the meta device is made, and moved there: it would drop them at once. What is
        drawn for a parameter there goes nowhere."""
        drawn = args[:1] if getattr(function, "__module__", "") == "torch.nn.init" else ()
        if drawn and isinstance(drawn[0], torch.nn.Parameter) and drawn[0].is_meta:
            return drawn[0]
        if function is not torch.tensor or _device(kwargs) != "meta":
            return function(*args, **kwargs)
        return function(*args, **{**kwargs, "device": "cpu"}).to("meta")

    with operator_mode(values.call), function_mode(made_on_the_cpu):
        model = make()
    for buffer in model.buffers():
        if isinstance(buffer, torch.Tensor) and buffer.is_meta:
            values.keep(buffer)
    return model


def runnable(builder: Builder, values: Config) -> Any:
    """A config's model as `built` gives it, in single precision, with the experts in a form that does not depend on
    what the router says."""

    def make() -> Any:
        model = builder.model(values)
        for form in ("batched_mm", "grouped_mm"):
            with suppress(Exception):
                model.set_experts_implementation(form)
                break
        return model.float()

    return built(make)
