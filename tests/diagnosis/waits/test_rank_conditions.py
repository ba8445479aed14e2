"""Which lines run on some ranks only, in the spellings that people use; and what is no question about the rank."""

import pytest

from distdbg.diagnosis.waits.rank_conditions import condition_of

CONDITIONAL = {
    'if os.environ["RANK"] == "0":\n    X()': "if os.environ['RANK'] == '0'",
    'if int(os.environ.get("SLURM_PROCID", 0)) == 0:\n    X()': "if int(os.environ.get('SLURM_PROCID', 0)) == 0",
    "if args.local_rank in (-1, 0):\n    X()": "if args.local_rank in (-1, 0)",
    "if accelerator.is_main_process:\n    X()": "if accelerator.is_main_process",
    "if trainer.is_world_process_zero():\n    X()": "if trainer.is_world_process_zero()",
    "if self.trainer.is_global_zero:\n    X()": "if self.trainer.is_global_zero",
    'if mesh.get_local_rank("dp") == 0:\n    X()': "if mesh.get_local_rank('dp') == 0",
    "if tp_rank == 0 and step % 5 == 0:\n    X()": "if tp_rank == 0 and step % 5 == 0",
    "if stage.is_first_stage:\n    pass\nelif is_last_stage:\n    X()": "if is_last_stage",
    "if not is_dist() or dist.get_rank() == 0:\n    X()": "if not is_dist() or dist.get_rank() == 0",
    "class A:\n def __init__(self):\n  self.c = a.rank == 0\n def f(self):\n  if self.c:\n   X()": "if self.c",
    "flag: bool = rank == 0\nif flag:\n    X()": "if flag",
    "if (r := dist.get_rank()) == 0:\n    X()": "if (r := dist.get_rank()) == 0",
    "main, world = rank == 0, 4\nif main:\n    X()": "if main",
    "def first():\n    return rank == 0\nif first():\n    X()": "if first()",
    "def save(m, main):\n    if main:\n        X()\nsave(1, rank == 0)": "if main",
    "def save(m, *, main=False):\n    if main:\n        X()\nsave(1, main=rank == 0)": "if main",
    "@rank_zero_only\ndef f():\n    X()": "@rank_zero_only",
    "@accelerator.on_main_process\ndef f():\n    X()": "@accelerator.on_main_process",
    "@state.on_process(process_index=3)\ndef f():\n    X()": "@state.on_process(process_index=3)",
    "match dist.get_rank():\n  case 0:\n    X()\n  case _:\n    pass": "match dist.get_rank(): case 0",
    "dist.get_rank() == 0 and X()": "if dist.get_rank() == 0",
    "rank != 0 or X()": "if not rank != 0",
    "X() if rank == 0 else None": "if rank == 0",
    "y = X().mean() if rank == 0 else 0": "if rank == 0",
    "while rank == 0:\n    X()": "while rank == 0",
    "if rank == 0:\n    with a:\n        try:\n            X()\n        finally:\n            b()": "if rank == 0",
    "if step:\n    if rank == 0:\n        if last:\n            X()": "if rank == 0",
    "if local_rank == 0:\n    if rank == 0:\n        X()": "if rank == 0",
}
OTHERWISE = {
    "if rank == 0:\n    pass\nelse:\n    X()": "if rank == 0",
    "def f():\n    if not main_process:\n        return\n    X()": "if not main_process",
    "for step in steps:\n    if rank != 0:\n        log()\n        continue\n    X()": "if rank != 0",
    "def f():\n    if rank:\n        raise E\n    with a:\n        X()": "if rank",
    "None if rank else X()": "if rank",
}
EVERYWHERE = [
    "X()",
    "if step == 0:\n    X()",
    "if lora_rank == 8:\n    X()",
    "seed = rank + 1\nif seed > 3:\n    X()",
    "if rank == 0:\n    log()\nX()",
    "def f():\n    if rank == 0:\n        log()\n    X()",
    "path = f'{rank}.pt'\nif exists(path):\n    X()",
    "while rank < 9:\n    break\nX()",
    "X() if rank == 0 else Y()",
    "X(out if rank == 0 else None)",
    "X(out if rank == 0 else [])",
    "X(rank == 0 and out)",
    "@torch.no_grad()\ndef f():\n    X()",
    "match step:\n  case 0:\n    X()",
    "if rank == 0:\n  def f():\n    return 1\nX()",
    "if rank ==",
    "",
    "\0",
]


def line_of(source):
    return next((n for n, text in enumerate(source.split("\n"), 1) if "X()" in text), 1)


@pytest.mark.parametrize("source", CONDITIONAL)
def test_a_line_that_runs_where_it_holds(source):
    found = condition_of(source, line_of(source))
    assert found is not None and (found.text, found.otherwise) == (CONDITIONAL[source], False)


@pytest.mark.parametrize("source", OTHERWISE)
def test_a_line_that_runs_where_it_does_not_hold(source):
    found = condition_of(source, line_of(source))
    assert found is not None and (found.text, found.otherwise) == (OTHERWISE[source], True)


@pytest.mark.parametrize("source", EVERYWHERE)
def test_a_line_that_says_nothing_of_ranks(source):
    assert condition_of(source, line_of(source)) is None


def test_the_line_of_the_condition_is_reported():
    found = condition_of("\n\nif rank == 0:\n    a()\n    X()\n", 5)
    assert found is not None and found.line == 3
    assert condition_of("\n\nif rank == 0:\n    a()\n    X()\n", 3) is None, "the test itself runs on all"


def test_a_source_that_is_deeply_nested_is_given_up():
    assert condition_of("(" * 5000 + ")" * 5000, 1) is None
    assert condition_of("x = " + "not " * 20_000 + "rank\nif x:\n    X()", 3) is None
