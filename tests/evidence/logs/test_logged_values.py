"""Losses and gradient norms that are not finite, in the forms in which training programs print them."""

from __future__ import annotations

import pytest

from distdbg.collect.runs.explaining import load
from distdbg.diagnosis.verdict import build_report
from distdbg.evidence.logs.logged_values import LoggedValues
from distdbg.evidence.logs.sources import SourceLine


def found(*lines: str) -> list[tuple[str, str, int, int | None]]:
    values = LoggedValues(SourceLine(number, line) for number, line in enumerate(lines, 1))
    return [(one.name, one.value, one.line, one.step) for one in values.lasting]


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
        ("step:4 - actor/pg_loss:nan - actor/kl:0.1", [("actor/pg_loss", "nan", 1, 4)]),
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
        ("step 1 loss=2.1 contrastive_loss=nan", "step 2 loss=2.0 contrastive_loss=nan"),
        ("epoch 1 train loss 0.5", "  cat loss: 0.3", "  dog loss: nan") * 2,
        ("epoch 1: D_loss=nan G_loss=0.3", "epoch 2: D_loss=nan G_loss=0.2"),
        ("step 1 loss/aux: nan", "step 1 loss/total: 2.0", "step 2 loss/aux: nan", "step 2 loss/total: 1.9"),
        ("step 1 loss: nan", "step 2 loss: nan", "starting again", "step 1 train_loss: 2.0"),
        ("step 1 loss: 2.0 grad_norm 1.0", "step 2 loss: 1.9 grad_norm inf"),
        ("iteration 1 lm loss: 2.0", "iteration 2 lm loss: nan (0 samples)"),
        ("step 1 valLoss=nan testloss=nan", "step 2 valLoss=nan testloss=nan"),
        ("Validation: step 1 loss nan", "Validation: step 2 loss nan"),
        ("test_loss.py::test_value[loss=nan] PASSED", "seen that loss=nan is refused ... ok"),
        ("prev_loss: inf", "{'max_grad_norm': inf}", "grad_norm_clip=inf"),
        ("codec lossless: nan at step 3", "step 3 packet loss: nan%"),
        ("step 1 loss 2.0", "when loss is nan, lower the rate"),
    ],
)
def test_healthy_lines(lines):
    assert found(*lines) == []


@pytest.mark.parametrize(
    ("lines", "names"),
    [
        (("step 1 loss 2.0 aux_loss 0.1", "step 2 loss nan aux_loss 0.1", "step 3 loss nan aux_loss 0.1"), ["loss"]),
        (("loss: 2.0", "loss: nan", "loss: nan"), ["loss"]),
        (("loss: 2.0", "Loss is nan, stopping training", "{'loss_box': tensor(nan)}"), ["Loss"]),
        (("step 9 lm loss: nan | z_loss: 1.0 | grad norm: nan",) * 2, ["lm loss", "grad norm"]),
        (("val_acc 0.5 step 1 train_loss 2.0", "train_loss nan", "val: acc 0.1 train_loss nan"), ["train_loss"]),
    ],
)  # fmt: skip
def test_sick_lines(lines, names):
    assert [name for name, *_ in found(*lines)] == names


@pytest.mark.parametrize(("steps", "ranks"), [(8, []), (5, [(1,)])])
def test_rank_is_healthy_if_another_logs_finite_values_later(tmp_path, steps, ranks):
    log = tmp_path / "train.log"
    lines = [f"[rank1]: step {step} loss: {'nan' if step >= 5 else 0.5}" for step in range(8)]
    log.write_text("\n".join([*lines, *(f"[rank0]: step {step} loss: 0.5" for step in range(steps))]))
    findings = build_report(load([log])).findings
    assert [finding.ranks for finding in findings] == ranks


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
    log.write_text(
        "step 1 loss: 2.0 grad_norm: 1.0\nstep 2 loss: 1.9 grad_norm: nan\nstep 3 loss: 1.9 grad_norm: nan\n"
    )
    (finding,) = build_report(load([log])).findings
    assert (finding.id, finding.severity, finding.step) == ("non-finite", "warning", 2)
