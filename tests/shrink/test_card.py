"""The card of a small model says what was cut and verified, and keeps the licence of its source."""

from __future__ import annotations

import json
from pathlib import Path

from distdbg.shrink.card import card
from distdbg.shrink.checkpoint.source import Folder
from distdbg.shrink.making import ShrinkRequest, make
from tests.shrink.checkpoints import sharded

MADE = {
    "weights": "sliced",
    "stacks": [{"path": "model.layers", "layers": 32, "kept": [0, 31]}],
    "narrowed": [{"axis": "experts", "from": "8", "to": "4", "edits": [[["num_local_experts"], 4]]}],
    "warnings": ["one"],
    "verified": {"ops": "pass", "weights": "pass; 10 | 20"},
}


def test_what_was_cut_and_verified() -> None:
    lines = card(MADE, "org/model", "").splitlines()
    assert lines[0] == "# A small copy of org/model"
    assert "- `model.layers`: 2 of 32 layers are kept (0, 31)" in lines
    assert "- experts: 4 of 8 (`num_local_experts`)" in lines
    assert "| ops | pass |" in lines and "| weights | pass; 10 / 20 |" in lines
    assert "It was not verified (`--no-verify`)." in card(MADE | {"verified": {}}, "m", "").splitlines()


def test_the_metadata_stays_and_the_text_does_not() -> None:
    made = card(MADE, "m", "---\nlicense: apache-2.0\n---\n# The best model\n---\n")
    assert made.startswith("---\nlicense: apache-2.0\n---\n\n# A small copy of m\n")
    assert "best" not in made
    assert card(MADE, "m", "---\nlicense: mit\n").startswith("# A small copy")


def test_it_is_written_beside_the_weights(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    sharded(folder, 4, of_a_layer=["mlp.up_proj.weight"])
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "num_hidden_layers": 4}))
    (folder / "README.md").write_text("---\nlicense: mit\n---\nThe full model.\n")
    make(Folder(folder), tmp_path / "small", ShrinkRequest(verify="none"))
    said = (tmp_path / "small" / "README.md").read_text()
    assert "license: mit" in said and "2 of 4 layers" in said and "The full model." not in said
