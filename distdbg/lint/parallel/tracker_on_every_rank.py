"""Every rank starts a run of an experiment tracker."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.script import names_in
from distdbg.lint.script.words import RANK_WORDS

_STARTS = re.compile(
    r"^(?:wandb\.init|mlflow\.start_run|trackio\.init|aim\.Run|neptune\.(?:init|init_run)|swanlab\.init|comet_ml\.(?:Experiment|start)|clearml\.Task\.init)$"
)
#: calls that show that several ranks run a function
_OF_RANKS = ("init_process_group", "DistributedDataParallel", "DDP", "FSDP", "FullyShardedDataParallel",
             "DistributedSampler", "init_distributed", "init_distributed_mode", "get_rank", "set_device",
             "Accelerator")  # fmt: skip

REAL_MISTAKES = 5
#: without these words there is nothing to check
NEEDS = (
    {"wandb", "mlflow", "neptune", "swanlab", "comet_ml", "clearml", "trackio", "aim"},
    (RANK_WORDS, {"Accelerator", "deepspeed"}),
)
#: the tracker is switched off on other ranks by other means
UNLESS = re.compile(r"WANDB_MODE|WANDB_DISABLED|mode\s*=\s*[\"']shared")
#: words of a test that may stand for one of the rank
_ONE_RANK = re.compile(
    r"(?:^|_)(?:is|root|main|master|logger|primary|chief|lead\w*|zero|first|head)(?:_|$)", re.IGNORECASE
)


def check(context: Context) -> Iterator[Hit]:
    launched = bool(context.frameworks & _STARTED_OUTSIDE)  # as many ranks as the launcher was told
    if context.frameworks - _STARTED_OUTSIDE or not (launched or (context.distributed and context.ranks.known)):
        return
    for call, name in context.script.call_names.items():
        if not _STARTS.match(name) or context.ranks.guarded(call) or context.ranks.mentions(call):
            continue
        if any(map(_ONE_RANK.search, _words_of_tests(context, call))):
            continue
        ways = list(context.values.ways_to(call))
        where = next((shown for way in ways if (shown := _run_by_ranks(context, way))), None)
        if where is not None and not launched:
            text = f"every rank calls {name}: the tracker shows one run for each rank"
            yield Hit(call, text, related=((where, "several ranks run this"),))
            continue
        if where is not None:
            text = f"where several ranks run this, each of them calls {name}: the tracker shows one run for each"
            yield Hit(call, text, "possible", "info", ((where, "several ranks may run this"),))


#: frameworks whose launcher decides how many ranks there are
_STARTED_OUTSIDE = frozenset(("accelerate", "deepspeed", "fabric"))


def _run_by_ranks(context: Context, node: ast.AST) -> ast.AST | None:
    """A sign in the function around the node, or at the top of its file, that each rank runs it."""
    script = context.script
    place = script.function_of(node) or script.module_of(node)
    for call in script.calls(*_OF_RANKS):
        if (script.function_of(call) or script.module_of(call)) is place:
            return call
    if isinstance(place, ast.Module):
        return None
    return next((one.test for one in script.within(place, ast.If) if context.ranks.asks(one.test)), None)


def _words_of_tests(context: Context, call: ast.Call) -> set[str]:
    """Of every `if` on the way to the call, and of what the variables in it are made of."""
    tests = [
        o.test for way in context.values.ways_to(call, 4) for o in context.script.above(way) if isinstance(o, ast.If)
    ]
    names = (n for test in tests for n in ast.walk(test) if isinstance(n, (ast.Name, ast.Attribute)))
    made = (value for name in names for value in context.values.bound(name))
    words = set().union(*map(names_in, tests), *map(names_in, made))
    return {word for word in words if not word.startswith("__")}
