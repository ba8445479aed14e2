"""What tensors on the meta device would hold, as far as it follows from tensors that are not there.

Models read sizes, masks and places from tensors and go by what they find. Whatever is made of real tensors alone (ids,
sizes of images, a mask; an `arange`) is computed for real, too, beside its counterpart on meta; what a parameter has
had a part in holds nothing.
"""

from __future__ import annotations

from typing import Any

#: elements of the largest tensor that is computed for real
_MOST = 1 << 24
#: what a tensor of this type answers that holds nothing: most questions are whether all is as it should be
_ANSWERS: dict[str, Any] = {"torch.bool": True, "torch.float32": 0.0, "torch.bfloat16": 0.0}


class Values:
    """Storages on the meta device whose content is known. Both are held, or another storage would get its address."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, Any]] = {}

    def of(self, tensor: Any) -> Any:
        """The tensor with its content; None where that is not known. Views of one storage are views of one content."""
        import torch

        if not tensor.is_meta:
            return tensor if tensor.device.type == "cpu" else None
        _, content = self._known.get(tensor.untyped_storage()._cdata, (None, None))
        if content is None:
            return None
        view = torch.empty(0, dtype=tensor.dtype, device="cpu")
        return view.set_(content, tensor.storage_offset(), tensor.size(), tensor.stride())

    def call(self, function: Any, args: Any, kwargs: dict[str, Any], tensors: list[Any]) -> Any:
        """The function's result on the meta device, and its content where that of all `tensors` among its arguments is
        known. Raises what the function raises."""
        import torch
        from torch.utils._pytree import tree_map_only

        contents = {id(t): self.of(t) for t in tensors}
        known = all(c is not None for c in contents.values()) and _is_plain(function, tensors)
        asked = _device(kwargs)

        def really() -> Any:
            real_args, real_kwargs = tree_map_only(torch.Tensor, lambda t: contents[id(t)], (args, kwargs))
            return function(*real_args, **real_kwargs | ({"device": torch.device("cpu")} if asked else {}))

        if known and (asked == "cpu" or not (asked or any(t.is_meta for t in tensors))):
            return really()
        if known and torch.Tag.dynamic_output_shape in function.tags:
            real = really()
            result = tree_map_only(torch.Tensor, lambda t: t.to("meta"), real)
        else:
            # sizes of images stay on the CPU, where they can be read; what is made of them meets meta here
            meta_args, meta_kwargs = tree_map_only(torch.Tensor, lambda t: t.to("meta"), (args, kwargs))
            result = function(*meta_args, **meta_kwargs | ({"device": torch.device("meta")} if asked else {}))
            known = known and _is_small(result)
            real = really() if known else None
        if known:
            self._remember(result, real)
        elif function._schema.is_mutable:
            for tensor in tensors:
                self._known.pop(tensor.untyped_storage()._cdata, None)  # written to with what is not known
        return result

    def answer(self, tensor: Any) -> Any:
        """What `.item()` gives of a tensor of one element."""
        content = self.of(tensor)
        return content.item() if content is not None else _ANSWERS.get(str(tensor.dtype), 0)

    def places(self, mask: Any) -> tuple[Any, ...]:
        """A mask as the indices of what it takes, one tensor a dimension; anything else as it is."""
        import torch

        content = self.of(mask) if mask is not None and mask.dtype is torch.bool else None
        return (mask,) if content is None else tuple(content.nonzero(as_tuple=True))

    def _remember(self, result: Any, real: Any) -> None:
        import torch
        from torch.utils._pytree import tree_leaves

        for on_meta, content in zip(tree_leaves(result), tree_leaves(real), strict=True):
            if not isinstance(on_meta, torch.Tensor) or not on_meta.is_meta:
                continue
            storage = on_meta.untyped_storage()
            if storage._cdata in self._known:  # a view, or written in place: so was its content
                continue
            held = torch.empty_strided(on_meta.shape, on_meta.stride(), dtype=on_meta.dtype, device="cpu")
            if on_meta.storage_offset() == 0 and held.untyped_storage().nbytes() == storage.nbytes():
                self._known[storage._cdata] = (storage, held.copy_(content).untyped_storage())


def _is_plain(function: Any, tensors: list[Any]) -> bool:
    """Neither by chance nor of more than is worth it."""
    import torch

    return torch.Tag.nondeterministic_seeded not in function.tags and _is_small(tensors)


def _is_small(value: Any) -> bool:
    import torch
    from torch.utils._pytree import tree_leaves

    return all(t.numel() <= _MOST for t in tree_leaves(value) if isinstance(t, torch.Tensor))


def _device(kwargs: dict[str, Any]) -> str | None:
    """The kind of device that a function was asked for."""
    asked = kwargs.get("device")
    return None if asked is None else str(asked).partition(":")[0]
