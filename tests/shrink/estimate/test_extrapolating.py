"""What the small model's layers say of the full one, against the full one itself."""

from __future__ import annotations

from pathlib import Path
from pkgutil import resolve_name

import pytest

from distdbg.errors import Refused
from distdbg.shrink.checkpoint.opening import open_source
from distdbg.shrink.child import TASKS
from distdbg.shrink.estimate.extrapolating import extrapolated, extrapolation_lines
from distdbg.shrink.making import ShrinkRequest, full_costs, make
from tests.shrink import models

STACK = {
    "path": "l",
    "also": [],
    "layers": 5,
    "kept": [0, 3],
    "kinds": [{"layers": [0, 1, 2], "kept": [0]}, {"layers": [3, 4], "kept": [3]}],
}


def test_kinds_times_their_layers_and_the_rest() -> None:
    assert extrapolated(100 + 10 + 7, {"l.0": 10, "l.1": 7}, [STACK]) == 100 + 3 * 10 + 2 * 7


def test_the_cost_of_a_lost_kind_is_not_known() -> None:
    with pytest.raises(LookupError, match=r"layers \[3, 4\] of l"):
        extrapolated(1, {}, [{**STACK, "kept": [0], "kinds": [STACK["kinds"][0], {"layers": [3, 4], "kept": []}]}])


def test_lines_for_people() -> None:
    text = "\n".join(extrapolation_lines({"parameters": 8e9, "flops": 3.2e13, "activation_bytes": 5e9}, 2048))
    assert "not known: the model does not run" in text
    assert "8,000,000,000" in text and "128.00 GB" in text and "32.00 TFLOP" in text and "5.00 GB kept" in text


@pytest.mark.slow
@pytest.mark.parametrize("model_type", ["gemma3_text", "llama"])
def test_the_full_model_costs_what_was_predicted(model_type: str, tmp_path: Path, in_process: None) -> None:
    settings = {**models.TINY, "num_hidden_layers": 8, "head_dim": 8}
    source = models.save(tmp_path / "large", model_type, **settings)
    made = make(open_source(str(source)), tmp_path / "s", ShrinkRequest(verify="none"))
    foretold = full_costs(tmp_path / "s", made, 32, False)
    every = [{**s, "kept": list(range(s["layers"])), "kinds": []} for s in made["stacks"]]
    measured = resolve_name(TASKS["costs"])({"small": str(source), "stacks": every, "trust": False, "tokens": 32})
    assert foretold == {cost: total for cost, (total, _) in measured.items()}
    assert foretold["flops"] > 0 and foretold["activation_bytes"] > 0
    assert foretold["collectives"] == 3 * 8 + 2 and foretold["gathered_bytes"] > 4 * foretold["parameters"]
    lost = make(open_source(str(source)), tmp_path / "t", ShrinkRequest(layers=1, verify="none"))
    if model_type == "gemma3_text":
        with pytest.raises(Refused, match="do not follow"):
            full_costs(tmp_path / "t", lost, 32, False)
