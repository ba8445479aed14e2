"""A program that launches ranks itself is refused, with what to type instead."""

from __future__ import annotations

import shlex

import pytest

from distdbg.errors import UsageError
from distdbg.rehearse.launchers import refuse_launcher

CONFIG = """
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config:
  fsdp_version: 2
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
machine_rank: 0
mixed_precision: bf16
num_machines: 2
num_processes: 8
"""


@pytest.fixture
def entry_point(tmp_path):
    """`entry_point(module)`: a console script as pip writes it."""

    def write(module):
        path = tmp_path / "program"
        path.write_text(
            f"#!/venv/bin/python\nimport sys\nfrom {module} import main\nif __name__ == '__main__':\n    main()\n"
        )
        return str(path)

    return write


def hint_of(program, *, is_module=False):
    with pytest.raises(UsageError) as refusal:
        refuse_launcher(program, is_module=is_module)
    return str(refusal.value), refusal.value.remedy.removeprefix("Type: ")


def test_accelerate_launch_becomes_a_rehearsal_with_its_config(entry_point, tmp_path):
    config = tmp_path / "accelerate.yaml"
    config.write_text(CONFIG)
    program = entry_point("accelerate.commands.accelerate_cli")
    message, hint = hint_of([program, "launch", "--config_file", str(config), "train.py", "--lr", "3"])
    words = shlex.split(hint)
    assert "accelerate launch" in message
    assert words[:6] == ["distdbg", "rehearse", "--nodes", "2", "--gpus", "4"] and words[-3:] == [
        "train.py",
        "--lr",
        "3",
    ]
    variables = {words[n + 1] for n, word in enumerate(words) if word == "--env"}
    assert {"ACCELERATE_MIXED_PRECISION=bf16", "ACCELERATE_USE_FSDP=true", "FSDP_VERSION=2"} <= variables


def test_accelerate_options_without_a_config_are_read():
    _, hint = hint_of(["accelerate.commands.launch", "--num_processes", "4", "-m", "my.train"], is_module=True)
    words = shlex.split(hint)
    assert words[:4] == ["distdbg", "rehearse", "--gpus", "4"] and words[-2:] == ["-m", "my.train"]


@pytest.mark.parametrize("arguments", [["--no-such-option"], []])
def test_what_accelerate_cannot_read_gets_the_general_hint(arguments):
    _, hint = hint_of(["accelerate.commands.launch", *arguments], is_module=True)
    assert hint.startswith("distdbg rehearse --gpus N SCRIPT")


@pytest.mark.parametrize(
    ("module", "name"), [("torch.distributed.run", "torchrun"), ("deepspeed.launcher.runner", "deepspeed")]
)
def test_other_launchers_are_refused(entry_point, module, name):
    assert f"'{name}'" in hint_of([entry_point(module)])[0]
    assert f"'{name}'" in hint_of([module], is_module=True)[0]


@pytest.mark.parametrize("program", ["train.py", "no-such-program"])
def test_scripts_are_not_refused(tmp_path, monkeypatch, program):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("from accelerate.commands.launch import launch_command\n")
    refuse_launcher([program, "launch"], is_module=False)
    refuse_launcher(["torch.distributed.runner"], is_module=True)
