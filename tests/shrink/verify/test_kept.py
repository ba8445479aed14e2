"""A layer that is not kept is held against the kept ones of its kind."""

from __future__ import annotations

import pytest

from distdbg.shrink.verify.kept import KeptStack, each_layer

STACK = KeptStack("l", 5, [0, 3], kinds=[[0, 1, 2], [3, 4]])


def test_a_layer_that_no_kept_one_of_its_kind_is_like_is_named():
    alike = {"l.0": 1, "l.1": 1, "l.2": 1, "l.3": 7, "l.4": 7}
    assert each_layer(STACK, {"bytes": alike}) == "pass"
    odd = {**alike, "l.2": 7, "l.4": 1}
    assert each_layer(STACK, {"bytes": odd}) == "warning: unlike the kept layers of their kind in bytes: 2,4"


def test_one_kept_layer_of_the_kind_is_enough():
    """The first is unlike the others (nothing before it needs a gradient), and two are kept."""
    stack = KeptStack("l", 4, [0, 1], kinds=[[0, 1, 2, 3]])
    assert each_layer(stack, {"bytes": {"l.0": 5, "l.1": 9, "l.2": 9, "l.3": 9}}) == "pass"


def test_nothing_is_said_of_a_kind_that_is_lost():
    what = {"bytes": {"l.0": 1, "l.1": 2, "l.2": 3, "l.3": 1}}
    assert each_layer(KeptStack("l", 3, [0], kinds=[[0], [1, 2]]), what).startswith("not run, because of the kinds")
    stack = KeptStack("l", 4, [0], kinds=[[0, 3], [1, 2]])
    assert each_layer(stack, what) == "pass; of the kinds of l.1-2 no layer is kept"


@pytest.mark.slow
def test_a_layer_that_a_wrong_kind_hides_is_seen_in_what_it_does():
    pytest.importorskip("transformers")
    from tests.shrink.verify.builders import builder, real_run

    fields = {"moe_intermediate_size": 16, "num_experts": 4, "num_experts_per_tok": 2, "head_dim": 16}
    full = builder("qwen3_moe", num_hidden_layers=4, mlp_only_layers=[0, 3], **fields)
    small = builder("qwen3_moe", num_hidden_layers=2, mlp_only_layers=[0], **fields)
    stacks = [KeptStack("model.layers", 4, [0, 2], kinds=[[0], [1, 2, 3]])]  # 3 is dense, and should be with 0
    said = real_run(full, small, stacks)
    assert said["each_layer"] == "warning: model.layers: unlike the kept layers of their kind in operators: 3"
    assert said["ops"] == said["gradients"] == "pass"
