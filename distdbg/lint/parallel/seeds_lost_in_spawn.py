"""The seed is set before the processes of the ranks are started: they do not inherit it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit

#: calls that seed, of libraries and of helpers
_SEEDS = re.compile(r"seed", re.IGNORECASE)

REAL_MISTAKES = 1
#: without these words there is nothing to check
NEEDS = ({"manual_seed("}, {"spawn("})
#: the processes are forked, and inherit all
UNLESS = re.compile(r"[\"']fork[\"']")


def check(context: Context) -> Iterator[Hit]:
    script = context.script
    for spawn in script.calls("spawn"):
        workers = context.values.callees(spawn) if "multiprocessing" in script.call_names[spawn] else []
        places = [*workers, *(f for worker in workers for f in context.loops.reached(worker))]
        calls = (call for place in places for call in script.within(place, ast.Call))
        if not workers or any(_SEEDS.search(script.last_names[call]) for call in calls):
            continue
        for call in script.calls("manual_seed"):
            same = script.function_of(call) is script.function_of(spawn)
            if same and script.begin[call] < script.begin[spawn] and script.call_names[call] == "torch.manual_seed":
                text = "the seed is set here, and the processes that spawn starts do not inherit it"
                yield Hit(call, text, related=((spawn, "the ranks are started here"), (workers[0], "sets no seed")))
                return
