"""Losses and gradient norms that are not finite, in the forms in which training programs print them."""

from __future__ import annotations

import pytest

from distdbg.collect.runs.explaining import load
from distdbg.diagnosis.verdict import build_report
from distdbg.evidence.logs.logged_values import lasting_non_finite
from distdbg.evidence.logs.sources import SourceLine


def found(*lines: str) -> list[tuple[str, str, int, int | None]]:
    values = lasting_non_finite(SourceLine(number, line) for number, line in enumerate(lines, 1))
    return [(one.name, one.value, one.line, one.step) for one in values]


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("{'loss': nan, 'grad_norm': 1.2, 'epoch': 0.5}", [("loss", "nan", 1, None)]),
        ('{"step": 12, "train/loss": NaN}', [("train/loss", "NaN", 1, 12)]),
        ("Epoch 3: 12%|█▏ | 5/40, train_loss=nan, lr=1e-4", [("train_loss", "nan", 1, None)]),
        ("iteration 90/500 | lm loss: -inf | grad norm: 0.31 |", [("lm loss", "-inf", 1, 90)]),
        ("global_step=7 gnorm: inf", [("gnorm", "inf", 1, 7)]),
        ("step 4 loss tensor(nan, device='cuda:0')", [("loss", "nan", 1, 4)]),
        ("ERROR: loss is NaN at step 31", [("loss", "NaN", 1, 31)]),
        ("actor/pg_loss:nan - actor/kl:0.1", [("actor/pg_loss", "nan", 1, None)]),
    ],
)  # fmt: skip
def test_forms(line, values):
    assert found(line) == values


@pytest.mark.parametrize(
    "lines",
    [
        ("step 1 loss 2.0 val_loss: nan",),
        ("best_loss: inf", "min loss = inf"),
        ("step 1 loss 2.0 grad_norm inf", "step 2 loss 1.9 grad_norm 3.1"),
        ("loss_scale: inf, loss scale: 65536.0",),
        ("number of nan iterations: 0 | loss: 2.1",),
        ("the function returns nan if the loss of precision is infinite",),
        ("loss: nandu, losses: information",),
    ],
)
def test_healthy_lines(lines):
    assert found(*lines) == []


def test_first_line_and_step_of_a_loss_that_stays_nan():
    lines = [f"step {step} loss: {'nan' if step == 2 or step > 5 else 1.5}" for step in range(9)]
    assert found(*lines) == [("loss", "nan", 7, 6)]


def test_log_of_another_launcher_tells_rank_step_and_line(tmp_path):
    log = tmp_path / "train.log"
    steps = (f"[rank1]: step {step} loss: {'nan' if step >= 700 else 0.5}" for step in range(900))
    log.write_text("\n".join(["starting", *steps]))
    (finding,) = build_report(load([log])).findings
    assert (finding.id, finding.severity, finding.ranks, finding.step) == ("non-finite", "error", (1,), 700)
    assert finding.evidence[0].line == 702


def test_gradient_norm_alone_is_a_warning(tmp_path):
    log = tmp_path / "train.log"
    log.write_text("step 1 loss: 2.0 grad_norm: 1.0\nstep 2 loss: 1.9 grad_norm: nan\n")
    (finding,) = build_report(load([log])).findings
    assert (finding.id, finding.severity, finding.step) == ("non-finite", "warning", 2)
