"""What verification proved, in three lines: of the layers, of the files, and what it did not prove."""

from __future__ import annotations

from distdbg.shrink.proved import proved

ALL = dict.fromkeys(
    ("kinds", "ops", "activation_bytes", "gradients", "each_layer", "stored_names", "names_and_shapes",
     "save_and_reload"), "pass"
) | {"weights": "pass; 80 bytes compared"}  # fmt: skip


def test_all_of_it() -> None:
    layers, files, rest = proved(ALL)
    assert "operators" in layers and "every other layer" in layers and "gradients" in layers
    assert "(80 bytes compared)" in files and "bit for bit" in files
    assert rest.startswith("not verified: nothing")


def test_what_was_not_run_is_not_claimed() -> None:
    said = ALL | {"save_and_reload": "not run, because it takes 4 GB", "each_layer": "warning: layer 3 does less"}
    layers, files, rest = proved(said)
    assert "every other layer" not in layers and "bit for bit" not in files
    assert rest == "not verified: each_layer (layer 3 does less); save_and_reload (because it takes 4 GB)"


def test_one_reason_is_given_once() -> None:
    said = dict.fromkeys(("names_and_shapes", "save_and_reload"), "not run, because optimum is missing")
    (rest,) = proved(said)
    assert rest == "not verified: names_and_shapes and save_and_reload (because optimum is missing)"


def test_every_check_is_in_a_line_or_named() -> None:
    for check in ALL:
        lines = list(proved({check: "pass"}))
        assert len(lines) == 2 or check == "each_layer", check
        assert check in list(proved({check: "not run, because"}))[-1]


def test_bytes_alone_prove_nothing_of_layers() -> None:
    """A checkpoint without a config: no model is built."""
    assert list(proved({"weights": "pass"}))[-1].startswith("not verified: the layers")


def test_nothing_was_checked() -> None:
    assert list(proved({})) == []
