"""A fix keeps the program running, is inserted once, and is left out where the corrected program might raise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from distdbg.lint.fixing import corrected, diff, with_edits
from distdbg.lint.linting import lint_text
from distdbg.lint.rule import Insert

HERE = Path(__file__).parent
FIXABLE = {
    path: text
    for path in sorted(HERE.glob("*/bad_*.py"))
    if lint_text(path.name, text := path.read_text(encoding="utf-8")).edits
}
#: runs every script in one process that has one rank
RUNNER = """
import runpy, sys
import torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
for path in sys.argv[1:]:
    runpy.run_path(path, run_name="__main__")
"""
AMP = """\
import torch


def train(model, other, loader, optimizer, other_optimizer):
    scaler = {scaler}
    for number, x in enumerate(loader):
        optimizer.zero_grad()
        scaler.scale(model(x).mean()).backward()
{body}
"""
CLIP = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"
CLIP_OTHER = "torch.nn.utils.clip_grad_norm_(other.parameters(), 1.0)"
STEP = ["scaler.step(optimizer)", "scaler.update()"]


def amp(*lines: str, scaler: str = 'torch.amp.GradScaler("cpu")') -> str:
    return AMP.format(scaler=scaler, body="\n".join(f"        {line}" for line in lines))


def apply_fixes(path: str, text: str) -> str:
    fixed = corrected(path, text, lint_text(path, text).edits)
    assert fixed is not None
    return fixed


def test_there_are_fixable_samples_of_each_rule_with_fixes() -> None:
    assert {path.parent.name for path in FIXABLE} == {"clip-before-unscale", "missing-set-epoch"}


@pytest.mark.parametrize("path", FIXABLE, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_fixed_sample_has_no_finding_left_and_no_second_fix(path: Path) -> None:
    fixed = apply_fixes(path.name, FIXABLE[path])
    linted = lint_text(path.name, fixed)
    assert path.parent.name not in {finding.id for finding in linted.findings}
    assert not linted.edits


@pytest.mark.slow
def test_every_fixed_sample_runs(tmp_path: Path) -> None:
    scripts = []
    for path, text in FIXABLE.items():
        assert 'if __name__ == "__main__":' in text, f"{path} has a fix, so it must be a program"
        for kind, content in (("before", text), ("after", apply_fixes(path.name, text))):
            script = tmp_path / f"{path.parent.name}_{path.stem}_{kind}.py"
            script.write_text(content, encoding="utf-8")
            scripts.append(script)
    command = [sys.executable, "-c", RUNNER, *map(str, scripts)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_two_clips_of_one_step_get_one_unscale() -> None:
    text = amp(CLIP, CLIP_OTHER, *STEP)
    linted = lint_text("train.py", text)
    assert [f.id for f in linted.findings if f.severity == "warning"] == ["clip-before-unscale"] * 2
    assert linted.edits == (Insert(9, "scaler.unscale_(optimizer)"),)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(amp(CLIP, "if number == 3:", "    continue", *STEP), id="update-skipped-by-continue"),
        pytest.param(amp(CLIP, "if number == 3:", "    return", *STEP), id="update-skipped-by-return"),
        pytest.param(
            amp(CLIP, "scaler.step(optimizer)", "if number % 2:", "    scaler.update()"), id="update-not-each"
        ),
        pytest.param(amp(CLIP, *STEP[:1], "scaler.step(other_optimizer)", *STEP[1:]), id="two-optimizers"),
        pytest.param(
            amp("try:", *(f"    {s}" for s in (CLIP, *STEP)), "except RuntimeError:", "    pass"), id="caught"
        ),
        pytest.param(amp(CLIP, *STEP, scaler="other.GradScaler()"), id="scaler-of-another-library"),
        pytest.param(amp(f"if True: {CLIP}", *STEP).replace("if True: ", "number += 1; "), id="not-first-on-its-line"),
        pytest.param(
            amp("optimizer = torch.optim.SGD(model.parameters(), fused=True)", CLIP, *STEP), id="fused-optimizer"
        ),
    ],
)
def test_clip_is_reported_but_not_fixed_if_unscaling_may_raise(text: str) -> None:
    linted = lint_text("train.py", text)
    assert "clip-before-unscale" in {finding.id for finding in linted.findings}
    assert not linted.edits


EPOCHS = """\
from torch.utils.data import DataLoader, DistributedSampler


def train(data, model, optimizer, loader, extra):
    sampler = DistributedSampler(data)
    loader = DataLoader(data, sampler=sampler)
    for epoch in range(3):
        for x in loader:
            optimizer.zero_grad()
            model(x).backward()
            optimizer.step()
"""


@pytest.mark.parametrize(
    ("old", "new", "is_fixed"),
    [
        ("range(3)", "range(3)", True),
        ("range(3)", "extra", False),
        ("range(3)", "('first', 'second')", False),
        (
            "torch.utils.data import DataLoader, DistributedSampler",
            "other import DataLoader, DistributedSampler",
            False,
        ),
    ],
    ids=["range", "unknown-elements", "texts", "sampler-of-another-library"],
)
def test_set_epoch_is_inserted_only_for_torch_and_whole_numbers(old: str, new: str, is_fixed: bool) -> None:
    linted = lint_text("train.py", EPOCHS.replace(old, new))
    assert "missing-set-epoch" in {finding.id for finding in linted.findings}
    assert bool(linted.edits) is is_fixed


def test_sampler_of_one_branch_is_not_used_in_the_other() -> None:
    lines = EPOCHS.splitlines()
    branches = [
        *lines[:4],
        "    if extra:",
        *(f"    {s}" for s in lines[4:6]),
        "    else:",
        *(f"    {s}" for s in lines[6:]),
    ]
    assert not lint_text("train.py", "\n".join(branches)).edits


def test_insertion_goes_above_comments_of_the_statement() -> None:
    text = EPOCHS.replace(
        "        for x", "        # distdbg: ignore[sync-in-step]\n        # all batches\n        for x"
    )
    assert lint_text("train.py", text).edits == (Insert(8, "sampler.set_epoch(epoch)"),)
    end_of_a_text = EPOCHS.replace("        for x", '        """Train.\n        # not a comment"""\n        for x')
    assert lint_text("train.py", end_of_a_text).edits == (Insert(8, "sampler.set_epoch(epoch)"),)
    assert "missing-set-epoch" not in {
        f.id for f in lint_text("train.py", apply_fixes("train.py", end_of_a_text)).findings
    }


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_inserted_line_ends_as_the_lines_of_the_file_do(ending: str) -> None:
    text = ending.join(["for a in b:", "    c()"])
    assert with_edits(text, [Insert(2, "d()")]) == ending.join(["for a in b:", "    d()", "    c()"])


def test_edit_that_causes_another_finding_is_not_applied() -> None:
    text = amp("scaler.unscale_(optimizer)", CLIP, *STEP)
    assert corrected("train.py", text, [Insert(10, "scaler.unscale_(optimizer)")]) is None
    assert corrected("train.py", text, [Insert(10, "if")]) is None


def test_diff_of_a_file_without_a_last_newline_can_be_applied() -> None:
    lines = list(diff("a.py", "b()\nc()", "a()\nb()\nc()"))
    assert lines[-1] == " c()\n\\ No newline at end of file\n"
