"""A folder without a config.json is refused with what to do about its form."""

from __future__ import annotations

from pathlib import Path

import pytest

from distdbg.errors import NothingToAnalyse
from distdbg.shrink.checkpoint.config_file import read_config
from distdbg.shrink.checkpoint.source import Folder


@pytest.mark.parametrize(
    ("file", "remedy"),
    [
        ("iter_0001000/mp_rank_00/model_optim_rng.pt", "--ckpt-convert-format torch_dist"),
        ("global_step10/mp_rank_00_model_states.pt", "DeepSpeed"),
        ("a.gguf", "GGUF"),
        ("other", "config.json"),
    ],
)
def test_its_form_is_named(tmp_path: Path, file: str, remedy: str) -> None:
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).touch()
    with pytest.raises(NothingToAnalyse) as refused:
        read_config(Folder(tmp_path))
    assert remedy in refused.value.remedy
