"""What is remembered of an operator on meta is what torch would give again, and no memory is shared by it."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from distdbg.shrink.verify.repeated import Fakes, OnMeta, repeated

pytestmark = pytest.mark.slow
aten = torch.ops.aten
ON_META = OnMeta()


def meta(*sizes: int, dtype: object = torch.float32) -> torch.Tensor:
    return torch.empty(sizes, dtype=dtype, device="meta")


@pytest.mark.parametrize(
    ("function", "args", "kwargs"),
    [
        (aten.mm.default, (meta(2, 3), meta(5, 3).t()), {}),
        (aten.add.Tensor, (meta(2, 1), meta(3)), {"alpha": 2}),
        (aten._to_copy.default, (meta(4, 3).t(),), {"dtype": torch.bfloat16}),
        (aten.native_layer_norm.default, (meta(2, 3), [3], meta(3), None, 1e-5), {}),
        (aten.cat.default, ([meta(2, 3), meta(4, 3)],), {}),
    ],
)
def test_the_same_asked_twice(function, args, kwargs):
    def form(result):
        parts = result if isinstance(result, tuple) else (result,)
        return [(p.shape, p.stride(), p.dtype, p.device.type, p.untyped_storage().nbytes()) for p in parts]

    plain = form(function(*args, **kwargs))
    first, second = repeated(function, args, kwargs, ON_META), repeated(function, args, kwargs, ON_META)
    assert form(first) == form(second) == plain and type(first) is type(second)


def test_a_number_of_another_type_is_another_question():
    whole = meta(3, dtype=torch.int64)
    types = [repeated(aten.mul.Tensor, (whole, by), {}, ON_META).dtype for by in (2, 2.0, True, 2, 2.0)]
    assert types == [torch.int64, torch.float32, torch.int64, torch.int64, torch.float32]


def test_a_view_and_what_is_written_in_place_are_of_what_was_given():
    for _ in range(2):
        tensor = meta(2, 3)
        for result in (
            repeated(aten.t.default, (tensor,), {}, ON_META),
            repeated(aten.add_.Tensor, (tensor, 1), {}, ON_META),
        ):
            assert result.untyped_storage()._cdata == tensor.untyped_storage()._cdata


def test_what_cannot_be_is_refused_each_time():
    for _ in range(2):
        with pytest.raises(RuntimeError):
            repeated(aten.mm.default, (meta(2, 3), meta(2, 3)), {}, ON_META)


def test_fake_tensors_are_remembered_apart_from_those_on_meta():
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode() as mode:
        fakes, makes = [torch.empty(2, 3), torch.empty(3, 5)], Fakes(mode)
        results = [repeated(aten.mm.default, tuple(fakes), {}, makes) for _ in range(2)]
    assert [(type(r), r.shape, r.device.type) for r in results] == [(type(fakes[0]), (2, 5), "cpu")] * 2
    assert repeated(aten.mm.default, (meta(2, 3), meta(3, 5)), {}, ON_META).device.type == "meta"
