from pathlib import Path

import pytest

from distdbg.worker.hooks import hook_points

WORKER = Path(hook_points.__file__).parents[1]


@pytest.fixture
def trace_rules():
    from torch._dynamo import trace_rules

    before = set(trace_rules.FORCE_SKIP_FILES)
    hook_points.hide_from_compiler(trace_rules)
    yield trace_rules
    trace_rules.FORCE_SKIP_FILES.intersection_update(before)


@pytest.mark.slow
def test_the_compiler_leaves_our_code_alone_but_for_what_stands_in_a_compiled_step_by_wish(trace_rules):
    files = {path.relative_to(WORKER).as_posix(): path for path in WORKER.rglob("*.py")}
    traced = {name for name, path in files.items() if not trace_rules.check_file(str(path)).skipped}
    assert traced == {
        "hooks/traced.py",
        "hooks/traced_outputs.py",
        *(name for name in files if name.startswith("shrunk/")),
    }


@pytest.mark.slow
def test_the_hooks_of_watch_stand_in_a_compiled_step_and_break_nothing(trace_rules):
    import torch

    from distdbg.worker.hooks import traced_outputs

    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    model.register_forward_pre_hook(traced_outputs.begins, with_kwargs=True)
    for module in model:
        module.register_forward_hook(traced_outputs.record, with_kwargs=True)
    given = torch.ones(2, 4)
    assert torch.equal(torch.compile(model, fullgraph=True, backend="eager")(given), model(given))


def test_it_is_reported_at_once():
    """`trace_rules.add` compiles a pattern of all folders anew: sixty modules took half a second of every rank."""

    class Rules:
        FORCE_SKIP_FILES = {"torch/optim/lr_scheduler.py"}  # noqa: RUF012

    hook_points.hide_from_compiler(Rules)
    assert str(WORKER / "guards" / "data.py") in Rules.FORCE_SKIP_FILES
