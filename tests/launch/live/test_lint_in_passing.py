"""What a launch says of the script itself: only what is certain, and nothing that was silenced."""

import threading
import time

import pytest

from distdbg.launch.live.remarks import LintInPassing

WRONG = """
import torch.distributed as dist
if dist.get_rank() == 0:
    dist.barrier()
"""
LIKELY = """
import torch, torch.distributed as dist
dist.init_process_group()
for epoch in range(3):
    torch.save({}, f"model_{epoch}.pt")
"""


def remarks_on(path, modes=()):
    """What is said within a while: a thread reads the script."""
    passing = LintInPassing(str(path), dict(modes))
    deadline = time.monotonic() + 60
    while not (found := passing.remarks()) and time.monotonic() < deadline:
        if not any(thread.name == "lint" for thread in threading.enumerate()):
            return passing.remarks()
        time.sleep(0.01)
    return found


def script(folder, text):
    path = folder / "train.py"
    path.write_text(text)
    return path


def test_what_is_certain_is_said_with_its_line(tmp_path):
    path = script(tmp_path, WRONG)
    (line,) = remarks_on(path)
    assert line.startswith(f"{path}:4: dist.barrier") and line.endswith("[rank-conditional-collective]")


def test_many_are_counted(tmp_path):
    saves = "".join(f"def save{n}():\n    if dist.get_rank() == 0:\n        dist.barrier()\n" for n in range(5))
    assert remarks_on(script(tmp_path, f"import torch.distributed as dist\n{saves}"))[-1].startswith(
        "2 more: `distdbg lint "
    )


def test_errors_come_before_warnings_if_some_are_left_out(tmp_path):
    clips = "        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n" * 4
    text = (
        "import torch\nimport torch.distributed as dist\n\n\ndef train(model, loader, optimizer):\n"
        "    scaler = torch.amp.GradScaler()\n    for x in loader:\n        optimizer.zero_grad()\n"
        f"        scaler.scale(model(x)).backward()\n{clips}        scaler.step(optimizer)\n        scaler.update()\n"
    )
    lines = remarks_on(script(tmp_path, text + WRONG))
    assert lines[0].endswith("[rank-conditional-collective]") and lines[1].endswith("[clip-before-unscale]")


@pytest.mark.parametrize(
    ("text", "modes"),
    [
        (LIKELY, {}),
        ("print('well')", {}),
        ("def (:", {}),
        (WRONG, {"all": "off"}),
        (WRONG.replace("barrier()", "barrier()  # distdbg: ignore[rank-conditional-collective]"), {}),
    ],
)
def test_nothing_else_is(tmp_path, text, modes):
    assert remarks_on(script(tmp_path, text), modes) == []


def test_a_pyproject_that_cannot_be_read_keeps_nobody(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool.distdbg.lint]\nselect = ['nonesuch']\n")
    assert remarks_on(script(tmp_path, WRONG)) == []


def test_no_script_no_word():
    assert LintInPassing(None, {}).remarks() == []


@pytest.mark.slow
def test_a_launch_says_it_and_goes_on(distdbg, tmp_path):
    (tmp_path / "train.py").write_text(
        "import torch.distributed as dist\n"
        "def save():\n"
        "    if dist.get_rank() == 0:\n"
        "        dist.barrier()\n"
        "print('well')\n"
    )
    done = distdbg("launch", "--nproc-per-node", "1", "train.py")
    assert done.code == 0 and "well" in done.out
    assert done.err.count("distdbg: train.py:4: dist.barrier") == 1, done.err
