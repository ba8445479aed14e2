"""A source that is none: what a person reads, before any work is done."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from distdbg.errors import NothingToAnalyse, UsageError
from distdbg.shrink.checkpoint.config_file import read_config
from distdbg.shrink.checkpoint.opening import open_source

LLAMA = {"model_type": "llama", "num_hidden_layers": 6}


def test_what_is_not_there() -> None:
    with pytest.raises(UsageError, match=r"^\./nope is no folder and no file here"):
        open_source("./nope")


def test_a_folder_with_a_gguf_file_alone(tmp_path: Path) -> None:
    (tmp_path / "model-Q4.gguf").write_bytes(b"GGUF")
    with pytest.raises(NothingToAnalyse) as found:
        read_config(open_source(str(tmp_path)))
    assert "GGUF" in found.value.remedy


@pytest.mark.parametrize(
    ("config", "options", "code", "said"),
    [
        (None, [], 2, "no folder and no file here"),
        ("{\n 'a': 1}", [], 5, "line 2, column 2"),
        (json.dumps(LLAMA), ["--keep", "0,6"], 2, "0 to 5"),  # and not that there are no weights
        (json.dumps(LLAMA), ["--keep", "0-"], 2, "is no list of layers"),
        (json.dumps({**LLAMA, "auto_map": {"AutoConfig": "mine.C"}}), ["--random"], 6, "--trust-remote-code"),
        (json.dumps(LLAMA), [], 3, "no weights"),
    ],
)
def test_what_the_command_says(tmp_path: Path, distdbg, config, options, code, said) -> None:
    if config is not None:
        (tmp_path / "model").mkdir()
        (tmp_path / "model" / "config.json").write_text(config)
    done = distdbg("shrink-model", "./model", "out", *options)
    assert (done.code, done.out) == (code, "") and said in done.err and "Traceback" not in done.err, done
    assert not (tmp_path / "out").exists()
