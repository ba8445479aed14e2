"""Every config type of the installed transformers, from saved weights through the default `shrink-model`.

    python benchmarks/shrink_sweep.py [TYPE …] [--sample N --seed S] [--json FILE] [--part N/M]

Of each type the default config is made narrow, its model gets random weights and is saved; then `shrink-model` makes
it small with default options, and what it wrote is compared here (see shrink_stored.py), apart from its own checks.
Types without an auto class are built by a class of their module. 10 to 60 s of CPU a type.

With --json a row is written as soon as it is known, and the next call goes on after those that are there.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import random
import re
import signal
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from distdbg.shrink.child import SELDOM
from distdbg.shrink.probe.task import quiet

#: results of a type whose narrow model could be made; `right` says that the outputs were compared, and depend on layers
DONE = ("right", "right by tensors alone", "warned", "refused", "wrong")
#: of this process, not of the clock: a machine may have other things to do
SECONDS_A_TYPE = 240


class TooLongError(BaseException):
    """Not an Exception: whatever a model's code raises while it is built is an answer, and this is none."""


def main() -> None:
    import transformers

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("types", nargs="*")
    parser.add_argument("--json", type=Path, help="write an object a line")
    parser.add_argument("--sample", type=int, help="a random sample of so many types")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--part", default="1/1", metavar="N/M", help="the Nth of M parts of the types")
    options = parser.parse_args()
    quiet()
    transformers.utils.logging.disable_progress_bar()
    _import_once()
    signal.signal(signal.SIGPROF, _too_long)
    everything = sorted(transformers.CONFIG_MAPPING.keys())
    types = options.types or [*everything]
    if options.sample:
        random.Random(options.seed).shuffle(types)  # a larger sample of the same seed goes on after the smaller one
        types = types[: options.sample]
    rows = _known(options.json)
    part, parts = map(int, options.part.split("/"))
    for model_type in types[part - 1 :: parts]:
        if model_type not in {row["type"] for row in rows}:
            rows.append(_apart(model_type))
            if options.json:
                with options.json.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
    print(f"transformers {transformers.__version__}, {len(rows)} of {len(everything)} types")
    for line in lines(rows):
        print(line)


def _known(file: Path | None) -> list[dict[str, Any]]:
    if file is None or not file.exists():
        return []
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def _import_once() -> None:
    """What nearly every type needs, before the copies are made: each would import it again."""
    for name in ("shrink_stored", "transformers.generation.utils", "transformers.integrations",
                 "transformers.trainer_utils", "transformers.models.auto.modeling_auto",
                 "transformers.models.auto.tokenization_auto", "transformers.models.auto.processing_auto",
                 "torch.fx.experimental.symbolic_shapes"):  # fmt: skip
        importlib.import_module(name)
    # models this small: a second thread would only wait for the first, at work
    resolve_name("torch:set_num_threads")(1)
    gc.freeze()  # what is there stays: looking through it again takes a part of each copy's time
    gc.set_threshold(*SELDOM)


def _apart(model_type: str) -> dict[str, Any]:
    """In a copy of this process: what one type leaves behind, or dies of, is not the next one's."""
    begin, used = time.monotonic(), os.times()
    with tempfile.TemporaryDirectory(prefix="distdbg-sweep-") as folder:
        answer = Path(folder, "row")
        copy = os.fork()
        if copy == 0:
            tempfile.tempdir = folder
            answer.write_text(json.dumps(_row(model_type)), encoding="utf-8")
            os._exit(0)
        _, status = os.waitpid(copy, 0)
        if status:
            row = {"type": model_type, "outcome": "not done", "why": f"its process ended with status {status}"}
        else:
            row = json.loads(answer.read_text(encoding="utf-8"))
    now = os.times()
    cpu = now.children_user + now.children_system - used.children_user - used.children_system
    return row | {"seconds": round(time.monotonic() - begin, 2), "cpu_seconds": round(cpu, 2)}


def _row(model_type: str) -> dict[str, Any]:
    from shrink_stored import look

    signal.setitimer(signal.ITIMER_PROF, SECONDS_A_TYPE)
    signal.alarm(20 * SECONDS_A_TYPE)  # one that waits uses no time of its own: the process ends
    try:
        return look(model_type)
    except TooLongError as error:
        return {"type": model_type, "outcome": "not done", "why": str(error)}
    except Exception as error:
        return {"type": model_type, "outcome": "wrong", "why": f"{type(error).__name__}: {error}"}


def lines(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Counts by result, each refusal, and why the others were not built."""
    yield f"| | types | not built here | {' | '.join(DONE)} |"
    yield f"|---|---|---|{'---|' * len(DONE)}"
    for name, own in (("with an auto class", False), ("without", True)):
        yield _counts(name, [row for row in rows if row.get("own_class", False) == own])
    yield _counts("all", rows)
    right = [row for row in rows if row["outcome"] == "right"]
    for what in ("same outputs", "runs", "outputs", "generate"):
        words = Counter(row.get(what, "not run").partition(":")[0].partition(",")[0].partition(";")[0] for row in right)
        yield f"{what}: {', '.join(f'{number} {word}' for word, number in sorted(words.items()))}"
    yield from _reasons(rows, DONE[1:], str)
    yield from _reasons(rows, ("not built", "not done"), _in_a_word)


def _outcome(row: dict[str, Any]) -> str:
    compared, _, blind = row.get("same outputs", "").partition("; no output depends on ")
    is_compared = compared == "pass" and len(blind.split(", ") if blind else ()) < len(row["stacks"])
    return "right by tensors alone" if row["outcome"] == "right" and not is_compared else str(row["outcome"])


def _counts(name: str, rows: list[dict[str, Any]]) -> str:
    count = Counter(_outcome(row) for row in rows)
    outside = count["not built"] + count["not done"]
    done = max(1, len(rows) - outside)
    shares = (f"{count[o]} ({100 * count[o] / done:.1f} %)" for o in DONE)
    return f"| {name} | {len(rows)} | {outside} | {' | '.join(shares)} |"


def _reasons(rows: list[dict[str, Any]], outcomes: tuple[str, ...], called: Callable[[str], str]) -> Iterator[str]:
    found: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        if _outcome(row) in outcomes:
            why = row["why"] or row.get("same outputs") or row.get("forward", "")
            found[f"{_outcome(row)}: {called(why)}"].append(row["type"])
    if found:
        yield ""
        yield "| result and reason | types | |"
        yield "|---|---|---|"
    for why, types in sorted(found.items(), key=lambda one: -len(one[1])):
        shown = ", ".join(sorted(types)) if len(types) < _MANY else ""
        yield f"| {why} | {len(types)} | {shown} |"


#: more types than these have no place in a cell
_MANY = 60


def _in_a_word(why: str) -> str:
    """Why transformers does not build a type, without what is particular to it."""
    if "no model class" in why:
        return "transformers has no model class for the type"
    if needs := re.search(r"requires the (\w+) library", why):
        return f"needs {needs[1]}"
    if "too large" in why or "longer than" in why:
        return why.removeprefix("Refused: ")
    return "its default values, or these made narrow, do not go together"


def _too_long(*_: object) -> None:
    raise TooLongError(f"longer than {SECONDS_A_TYPE} s")


if __name__ == "__main__":
    main()
