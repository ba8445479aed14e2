"""What is made of known tensors is known on the meta device, and nothing else is."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from distdbg.shrink.verify import values
from distdbg.shrink.verify.measuring import dry
from distdbg.shrink.verify.values import built

pytestmark = pytest.mark.slow
SIZES = torch.tensor([[4, 6], [2, 3]])


def made(function, **given):
    """What `function` gives of these tensors under the mode that remembers."""
    return dry(function, given)


def test_sizes_stay_known_on_meta():
    def lengths(sizes):
        there = sizes.to("meta")
        assert there.is_meta
        return (there.prod(dim=-1) // 2).tolist(), torch.repeat_interleave(there[:, 0], there[:, 1]).shape[0]

    assert made(lengths, sizes=SIZES) == ([12, 3], 9)


def test_views_and_what_is_written_in_place():
    def written(sizes):
        there = sizes.to("meta")
        rows = there[1]
        rows += torch.ones(2, dtype=torch.long, device="meta")
        return there.flatten().tolist()

    assert made(written, sizes=SIZES.clone()) == [4, 6, 3, 4]


def test_a_mask_of_real_pixels_says_how_many_it_takes():
    def taken(pixels, weight):
        real = (pixels == 0).sum(dim=-1) != 3
        return (pixels * weight)[real].shape

    pixels = torch.stack([torch.ones(3), torch.zeros(3), torch.ones(3)])
    assert made(taken, pixels=pixels, weight=torch.ones(3, device="meta")) == (2, 3)


def test_what_a_parameter_had_a_part_in_is_not_known():
    def mixed(sizes, weight):
        there = sizes.to("meta").float()
        there[0] = weight
        return there.sum().item(), (there * weight > 0).any().item()

    assert made(mixed, sizes=SIZES, weight=torch.ones(2, device="meta")) == (0.0, True)  # the usual answers
    with pytest.raises(NotImplementedError):
        made(lambda weight: weight.nonzero(), weight=torch.ones(2, device="meta"))


def test_chance_is_not_computed():
    torch.manual_seed(1)
    before = torch.get_rng_state()
    assert made(lambda sizes: torch.rand(4, device="meta").sum().item(), sizes=SIZES) == 0.0
    assert torch.equal(torch.get_rng_state(), before)


def test_what_would_be_too_large_is_not_computed():
    def squared(sizes):
        row = torch.arange(1 << 20, device="meta")
        return (row[:, None] == row[None, :]).shape, int(row[-1])

    assert made(squared, sizes=SIZES) == ((1 << 20, 1 << 20), (1 << 20) - 1)


def test_of_large_fractions_so_many_are_computed_and_of_numbers_all(monkeypatch):
    monkeypatch.setattr(values, "_LARGE", 4)
    monkeypatch.setattr(values, "_MOST_FRACTIONS", 20)

    def known(sizes):
        there = [(sizes.to("meta") / 2.0).flatten().repeat(2) for _ in range(4)]  # 8 each
        numbers = [sizes.to("meta").flatten().repeat(2) for _ in range(4)]
        return [t[1].item() for t in there], [t[1].item() for t in numbers]

    fractions, numbers = made(known, sizes=SIZES)
    assert fractions == [3.0, 3.0, 0.0, 0.0] and numbers == [6] * 4


def test_what_a_constructor_made_of_numbers_is_known_and_its_weights_are_not():
    class Windowed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.LayerNorm(3)
            self.register_buffer("kernel", torch.tensor(7), persistent=False)
            self.register_buffer("places", torch.arange(4).flip(0))
            self.register_buffer("noise", torch.rand(2))
            self.register_buffer("large", torch.zeros(1 << 17))

        def forward(self, sizes):
            cut = sizes.to("meta")[0, : self.kernel - 6].tolist()
            unknown = [t.sum().item() for t in (self.noise, self.large, self.norm.weight)]
            return cut, self.places.tolist(), unknown

    def made_on_meta():
        with torch.device("meta"):
            return Windowed()

    (module, again) = (built(made_on_meta), built(made_on_meta))
    for one in (module, again):
        assert dry(one, {"sizes": SIZES}) == ([4], [3, 2, 1, 0], [0.0, 0.0, 0.0])


def test_autocast_that_is_switched_off_on_meta_changes_nothing():
    def cast(sizes):
        with torch.autocast(device_type=sizes.to("meta").device.type, enabled=False):
            return sizes.to("meta").sum().item()

    assert made(cast, sizes=SIZES) == 15


def test_a_number_that_is_drawn_for_a_decision_is_a_number():
    """Whether a layer is left out, as before transformers 5: the answer of nothing would be that each is."""

    class Layer(torch.nn.Linear):
        def forward(self, x):
            return None if torch.rand([]) < 0.0 else super().forward(x)

    assert dry(Layer(2, 3, device="meta"), {"x": torch.empty(1, 2, device="meta")}).shape == (1, 3)


def test_a_loop_over_the_experts_that_a_router_chose(monkeypatch):
    monkeypatch.setattr(values, "_loops_over_experts", lambda: True)

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.gate = torch.nn.Linear(2, 4, device="meta")
            self.experts = torch.nn.ModuleList(torch.nn.Linear(2, 2, device="meta") for _ in range(4))

        def forward(self, x):
            _, chosen = torch.topk(self.gate(x), 2, dim=-1)
            mask = torch.nn.functional.one_hot(chosen, num_classes=4).permute(2, 1, 0)
            result, used = torch.zeros_like(x), []
            for number in torch.greater(mask.sum(dim=(-1, -2)), 0).nonzero():
                _, rows = torch.where(mask[number].squeeze(0))
                result.index_add_(0, rows, self.experts[number](x[rows]))
                used.append(int(number))
            return result, used

    result, used = dry(Block(), {"x": torch.empty(6, 2, device="meta")})
    assert result.shape == (6, 2) and used == [0, 1, 2, 3]
