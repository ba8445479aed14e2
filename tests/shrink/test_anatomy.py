"""The anatomy of a model as a person reads it."""

from distdbg.shrink.anatomy import anatomy_lines

PROBE = {
    "model_type": "m",
    "model_class": "MForCausalLM",
    "warnings": ["heads has 2 layers"],
    "stacks": [
        {
            "path": "model.layers",
            "layers": 7,
            "kept": [0, 5],
            "driven_by": "text_config.num_hidden_layers",
            "kinds": [
                {"class": "Layer", "layers": [0, 1, 2, 3, 4, 6], "parameters": 1_234_567, "bytes": 2_469_134},
                {"class": "Layer", "layers": [5], "parameters": 999, "bytes": 1998},
            ],
        }
    ],
}


def test_the_picture_and_the_table() -> None:
    lines = list(anatomy_lines(PROBE))
    assert lines[0] == "m (MForCausalLM)"
    assert lines[2] == "model.layers: 7 layers, counted by text_config.num_hidden_layers"
    assert lines[3].split() == "A Layer 6 x 1.23M parameters 2.47MB layers 0-4, 6".split()
    assert lines[5:8] == ["  AAAAABA", "  ^    ^", "  --layers auto keeps 0, 5"]
    assert lines[-1] == "warning: heads has 2 layers"


def test_long_stacks_go_over_several_rows() -> None:
    rows = list(anatomy_lines(PROBE, width=8))
    assert rows[5:9] == ["  AAAA", "  ^", "  ABA", "   ^"]
