from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.conftest import Command


def test_lists_every_preset_with_default_first(distdbg: Command) -> None:
    done = distdbg("env")
    assert done.code == 0, done
    heads = [line.partition(":")[0] for line in done.out.splitlines() if line and not line.startswith(" ")]
    assert heads[0] == "default" and {"hang", "debug", "network", "deterministic", "sync-crash"} < set(heads)
    assert "TORCH_NCCL_ASYNC_ERROR_HANDLING=3" in done.out


def test_one_variable_is_explained_with_the_users_own_value(distdbg: Command) -> None:
    done = distdbg("env", "TORCH_FR_BUFFER_SIZE", env={"TORCH_FR_BUFFER_SIZE": "77"})
    assert done.code == 0, done
    words = done.out.split()
    assert {"why", "costs", "since", "source"} <= set(words) and words[words.index("yours") + 1] == "77"
    assert "TORCH_FR_BUFFER_SIZE=20000" in words  # the preset hang's


def test_a_deprecated_name_leads_to_the_new_one(distdbg: Command) -> None:
    assert "TORCH_NCCL_ASYNC_ERROR_HANDLING=3" in distdbg("env", "NCCL_ASYNC_ERROR_HANDLING").out


def test_new_name_is_advised_if_the_installed_torch_reads_it(distdbg: Command, tmp_path: Path) -> None:
    """Before torch 2.15 nothing reads TORCH_FR_DUMP_ON_TIMEOUT."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").touch()
    env = {"TORCH_NCCL_DUMP_ON_TIMEOUT": "1", "PYTHONPATH": str(tmp_path)}
    for version, advised in (("2.14.1", False), ("2.15.0", True)):
        (tmp_path / "torch" / "version.py").write_text(f"__version__ = '{version}'\n")
        assert ("write TORCH_FR_DUMP_ON_TIMEOUT" in distdbg("env", env=env).out) is advised


def test_variable_that_the_default_backend_ignores(distdbg: Command, tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").touch()
    for version, legacy, ignored in (("2.14.1", "", False), ("2.15.0", "", True), ("2.15.0", "0", False)):
        (tmp_path / "torch" / "version.py").write_text(f"__version__ = '{version}'\n")
        env = {"TORCH_NCCL_DESYNC_DEBUG": "1", "PYTHONPATH": str(tmp_path), "TORCH_DIST_USE_NCCL2": legacy}
        note = "TORCH_NCCL_DESYNC_DEBUG: nccl2, torch 2.15.0's default backend, does not read it"
        assert (note in distdbg("env", env=env).out) is ignored
    done = distdbg("env", "TORCH_NCCL_NAN_CHECK")
    assert "nccl2   does not read it: TORCH_DIST_NAN_CHECK=1 is the same check" in done.out, done
    assert "nccl2 does not read it: it has no monitor" in distdbg("env", "TORCH_NCCL_ENABLE_MONITORING").out


def test_json(distdbg: Command) -> None:
    value = json.loads(distdbg("env", "--preset", "sync-crash", "--json").out)
    assert list(value["presets"]) == ["sync-crash"]
    names = {v["name"] for v in value["presets"]["sync-crash"]["variables"]}
    assert "CUDA_LAUNCH_BLOCKING" in names


def test_names_that_are_not_there(distdbg: Command) -> None:
    done = distdbg("env", "TORCH_FR_BUFER_SIZE")
    assert done.code == 3 and "Did you mean TORCH_FR_BUFFER_SIZE?" in done.err
    done = distdbg("env", "--preset", "hnag")
    assert done.code == 2 and "hang" in done.err


def test_variables_that_no_preset_sets(distdbg: Command) -> None:
    done = distdbg("env", "NCCL_P2P_DISABLE", env={"NCCL_P2P_DISABLE": "1"})
    assert done.code == 0 and "no preset sets it: it hides a broken link" in done.out, done
    assert "NCCL 2.18 to 2.21" in distdbg("env", "NCCL_WORK_FIFO_DEPTH").out


def test_shell_lines_are_shell(distdbg: Command) -> None:
    done = distdbg("env", "--preset", "deterministic", "--shell", env={"NCCL_ALGO": "Tree"})
    assert done.code == 0, done
    read = subprocess.run(
        ["bash", "-c", f"{done.out}\nprintenv NCCL_PROTO CUBLAS_WORKSPACE_CONFIG; env"], capture_output=True, text=True
    )
    assert read.stdout.startswith("Simple\n:4096:8\n"), read
    assert "NCCL_ALGO=Tree is yours" in done.out and "export NCCL_ALGO" not in done.out
    assert "export TORCH_NCCL_ASYNC_ERROR_HANDLING=3" in done.out
