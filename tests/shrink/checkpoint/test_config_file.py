"""What a config alone shows to be wrong is refused before torch is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from distdbg.errors import EvidenceUnreadable, UsageError
from distdbg.shrink.checkpoint.config_file import read_config, refuse_absent_layers
from distdbg.shrink.checkpoint.source import Folder

LLAMA = {"model_type": "llama", "num_hidden_layers": 6}
SWIN = {"model_type": "swin", "num_layers": 4, "depths": [2, 2, 18, 2]}


@pytest.mark.parametrize("keep", ["6", "0,-7", "4-9", "9-4", "first:7", "0,last:8"])
def test_layers_that_cannot_be_there(keep: str) -> None:
    with pytest.raises(UsageError, match="6 layers at most"):
        refuse_absent_layers(LLAMA, keep, None)


@pytest.mark.parametrize("keep", ["kinds", "ends", "0-5", "-6", "5-0", "first:6,last:1", "-2--1"])
def test_layers_that_can_be_there(keep: str) -> None:
    refuse_absent_layers(LLAMA, keep, 6)


def test_the_number_of_layers() -> None:
    with pytest.raises(UsageError, match="6 layers at most"):
        refuse_absent_layers(LLAMA, "kinds", 7)


def test_stages_count_each_their_own() -> None:
    refuse_absent_layers(SWIN, "17", 18)
    with pytest.raises(UsageError, match="18 layers at most"):
        refuse_absent_layers(SWIN, "18", None)


def test_a_syntax_error_is_named_by_its_line(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{\n  "model_type": "llama" oops\n}')
    with pytest.raises(EvidenceUnreadable, match="line 2, column 25") as refused:
        read_config(Folder(tmp_path))
    assert "that line" in refused.value.remedy
