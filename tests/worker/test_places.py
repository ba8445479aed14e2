from pathlib import Path

import pytest

from distdbg.worker import places

WORKER = Path(places.__file__).parent


@pytest.mark.slow
def test_the_compiler_leaves_our_code_alone_but_for_what_stands_in_a_compiled_step_by_wish():
    from torch._dynamo import trace_rules

    before = set(trace_rules.FORCE_SKIP_FILES)
    try:
        places.hide_from_compiler(trace_rules)
        traced = {
            path.relative_to(WORKER).as_posix()
            for path in WORKER.rglob("*.py")
            if not trace_rules.check_file(str(path)).skipped
        }
    finally:
        trace_rules.FORCE_SKIP_FILES.intersection_update(before)
    assert traced == {"traced.py", *(f"shrunk/{p.name}" for p in (WORKER / "shrunk").glob("*.py"))}


def test_it_is_told_in_one_go():
    """`trace_rules.add` compiles a pattern of all folders anew: sixty modules took half a second of every rank."""

    class Rules:
        FORCE_SKIP_FILES = {"torch/optim/lr_scheduler.py"}  # noqa: RUF012

    places.hide_from_compiler(Rules)
    assert str(WORKER / "guards" / "missing_set_epoch.py") in Rules.FORCE_SKIP_FILES
