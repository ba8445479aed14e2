"""What fits a card, found with few looks; and the cards that have a name."""

import pytest

from distdbg.errors import UsageError
from distdbg.report.text.estimate_text import fits_text
from distdbg.shrink.estimate.estimating import CUBLAS, EstimateRequest
from distdbg.shrink.estimate.fitting import TrackedSteps, card, fits, next_look

M = 1 << 20


def step(batch, sequence, layers):
    """Bytes as a transformer's: the weights' part with the layers, the rest with the tokens and their square."""
    weights = (20 + 10 * layers) * M
    activations = batch * (layers * (sequence * 2**12 + sequence * sequence * 4) + sequence * 2**14)
    kinds = {"parameters": weights, "gradients": 0, "optimizer state": 2 * weights, "activations": activations}
    optimizer = {"parameters": weights, "gradients": weights, "optimizer state": 3 * weights}
    return {"forward and backward": kinds, "optimizer": optimizer, "gradients": weights, "parameters": weights,
            "layers": [10 * M] * layers, "outside": 20 * M}  # fmt: skip


def looked(calls, positions=None, layers=24):
    def look(asked):
        calls.append(len(asked))
        steps = [step(one.batch, one.sequence, one.layers or 24) for one in asked]
        return TrackedSteps(tuple(steps), positions, layers)

    return look


def total(batch, sequence, layers):
    made = step(batch, sequence, layers)
    return (max(sum(made["forward and backward"].values()), sum(made["optimizer"].values())) + CUBLAS) * 1.1


@pytest.mark.parametrize("room", [1500 * M, 3000 * M, 20_000 * M, 80_000 * M])
@pytest.mark.parametrize(("batch", "sequence"), [(1, 512), (8, 2048)])
def test_each_answer_fits_and_a_little_more_does_not(room, batch, sequence):
    calls = []
    found = {fit.axis: fit for fit in fits(EstimateRequest(batch, sequence), 1, "none", room, looked(calls))}
    assert len(calls) <= 10 and sum(calls) <= 24
    for axis, (of, grain) in {
        "batch": (lambda n: total(n, sequence, 24), 1),
        "sequence": (lambda n: total(batch, n, 24), 64),
        "layers": (lambda n: total(batch, sequence, n), 1),
    }.items():
        largest, most = found[axis].largest, found[axis].most
        beyond = min(most, largest + max(grain, largest // 32) + grain)
        assert (largest == 0 or of(largest) <= room) and (of(beyond) > room or beyond == most), (axis, largest)
    assert found["layers"].own == 24 and found["layers"].most == 48


def test_the_models_positions_are_a_limit_and_what_cannot_be_looked_at_is_said():
    def look(asked):
        tracked = looked([], positions=1024)(asked)
        refused = [{"because": "no field resizes it"} if one.layers else made
                   for one, made in zip(asked, tracked.steps, strict=True)]  # fmt: skip
        return TrackedSteps(tuple(refused), 1024, None)

    found = fits(EstimateRequest(1, 512), 1, "none", 80_000 * M, look)
    assert found[1].largest == 1024 and found[2].largest is None
    said = fits_text("H100", 80_000 * M, found, 1, 512)
    assert "1,024 tokens in a batch of 1: all that the model knows (1,024)" in said
    assert "layers    unknown, because no field resizes it" in said and "H100 (78.1 GiB to be had)" in said


def test_a_card_that_is_too_small_has_room_for_none():
    found = fits(EstimateRequest(4, 512), 1, "none", 100 * M, looked([]))
    assert [fit.largest for fit in found] == [0, 0, 0]
    assert fits_text("0.1GiB", 100 * M, found, 4, 512).count("not even the fewest") == 3


def test_a_curve_is_followed_from_both_sides():
    for cost in (lambda n: n * n, lambda n: max(100 * n, n * n - 4000), lambda n: 7 * n + 3):
        for room in (90, 5_000, 123_456, 10**7):
            known = {1: cost(1), 2: cost(2)}
            for _ in range(12):
                asked = next_look(known, room, 1, 10**9)
                if asked is None:
                    break
                assert asked not in known
                known[asked] = cost(asked)
            best = max((n for n in known if known[n] <= room), default=0)
            assert cost(best + max(1, best // 32) + 1) > room, (best, room)


@pytest.mark.parametrize(
    ("words", "size"),
    [("80GiB", 80 << 30), ("80", 80 << 30), ("0.5 GiB", 1 << 29), ("24GB", 24 * 10**9), ("512MiB", 512 * M),
     ("h100", int(79.11 * 2**30)), ("A100 80GB", int(79.10 * 2**30)), ("rtx-4090", int(23.52 * 2**30))],
)  # fmt: skip
def test_a_card_is_a_size_or_a_name(words, size):
    assert card(words).bytes == size


@pytest.mark.parametrize("words", ["", "0", "H1000", "-5", "80GiBs", "A100", "inf"])
def test_what_is_neither_is_refused_with_the_names(words):
    with pytest.raises(UsageError, match="neither a size nor a card") as caught:
        card(words)
    assert "A100-40GB" in caught.value.remedy
