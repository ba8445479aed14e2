"""Every config type of the installed transformers with its default values: shrunk, refused, or not to be built here.

    python benchmarks/shrink_sweep.py [TYPE …] [--json FILE] [--each-layer | --stored] [--part N/M]

About five minutes for all of them on one core; with --each-layer, which runs each model on meta, half an hour or more.

With --json a row is written as soon as it is known, and the next call goes on after those that are there.

`shrunk` means: one layer of each kind is kept, every kept layer is compared with the one it stands for (classes,
shapes, plain attributes) and what is outside the stacks is unchanged. Forward passes are not part of it. --each-layer
names the types in which a layer that is not kept does other work in a step than the kept ones of its kind.

--stored goes from weights to weights (see shrink_stored.py): a narrow model with random weights is saved by
transformers, made small, loaded, compared tensor by tensor, and run. About 5 s of CPU a type; --part 1/2 does every
second one.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import re
import signal
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from distdbg.errors import DistdbgError, Refused
from distdbg.shrink.child import SELDOM
from distdbg.shrink.probe.building import Builder, model_class
from distdbg.shrink.probe.shrinking import ShrunkModel, WantedLayers, shrink
from distdbg.shrink.probe.task import quiet
from distdbg.shrink.verify.comparing import compare
from distdbg.shrink.verify.kept import KeptStack
from distdbg.shrink.verify.task import on_meta

#: of this process, not of the clock: a machine may have other things to do
SECONDS_A_TYPE = 120


class TooLongError(BaseException):
    """Not an Exception: whatever a model's code raises while it is built is an answer, and this is none."""


def main() -> None:
    import transformers

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("types", nargs="*")
    parser.add_argument("--json", type=Path, help="write an object a line")
    parser.add_argument("--each-layer", action="store_true", help="hold each layer against the kept one of its kind")
    parser.add_argument("--stored", action="store_true", help="from saved weights to a step of the small model")
    parser.add_argument("--part", default="1/1", metavar="N/M", help="the Nth of M parts of the types")
    options = parser.parse_args()
    quiet()
    transformers.utils.logging.disable_progress_bar()
    if options.stored:
        _imported_once()
    signal.signal(signal.SIGPROF, _too_long)
    rows = _known(options.json)
    part, parts = map(int, options.part.split("/"))
    for model_type in options.types or sorted(transformers.CONFIG_MAPPING.keys())[part - 1 :: parts]:
        if model_type not in {row["type"] for row in rows}:
            rows.append(_apart(model_type) if options.stored else look(model_type, each=options.each_layer))
            if options.json:
                with options.json.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
    if options.stored:
        for line in stored_lines(rows):
            print(line)
        return
    for row in rows:
        if row.get("each_layer", "").startswith("warning"):
            print(f"{row['type']:<32} {row['each_layer']}")
        if row["outcome"] in ("refused", "failed"):
            print(f"{row['outcome']:<8} {row['type']:<32} {row['why']}")
    print(f"transformers {transformers.__version__}, {len(rows)} types; {_builds(rows)}")
    for line in table(rows):
        print(line)
    counts = Counter(row["each_layer"].partition(":")[0].partition(",")[0] for row in rows if row.get("each_layer"))
    if counts:
        print("each layer against the kept one of its kind:", ", ".join(f"{word} {n}" for word, n in counts.items()))


def _known(file: Path | None) -> list[dict[str, Any]]:
    if file is None or not file.exists():
        return []
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def _builds(rows: list[dict[str, Any]]) -> str:
    return f"{sum(row['builds'] for row in rows)} builds in {sum(row['seconds'] for row in rows):.0f} s"


def table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """As docs/shrink.md shows it: of the types that can be built here and have a stack, by their number of stacks."""
    built = [row for row in rows if row["outcome"] != "not built"]
    yield "| | types | shrunk | refused, with the reason | wrong |"
    yield "|---|---|---|---|---|"
    groups = (("one stack", 1, 1), ("two", 2, 2), ("three or more", 3, 99), ("refused before any was cut", 0, 0))
    for name, least, most in (*groups, ("all that can be built", 0, 99)):
        inside = [row for row in built if least <= len(row.get("stacks", ())) <= most]
        count = Counter(row["outcome"] for row in inside)
        shares = (f"{count[o]} ({100 * count[o] / max(1, len(inside)):.1f} %)" for o in ("shrunk", "refused", "failed"))
        yield f"| {name} | {len(inside)} | {' | '.join(shares)} |"


def look(model_type: str, *, each: bool = False) -> dict[str, Any]:
    begin = time.monotonic()
    row: dict[str, Any] = {"type": model_type, "builds": 0, "outcome": "not built", "why": ""}
    signal.setitimer(signal.ITIMER_PROF, SECONDS_A_TYPE)
    try:
        builder = _builder(model_type)
        row["outcome"] = "failed"
        found = shrink(builder, WantedLayers())
        lost = [s.name for s in found.stacks if {s.kinds[i] for i in s.kept} != set(s.kinds)]
        row |= {"outcome": "failed" if lost else "shrunk", "why": f"kinds lost in {lost}" if lost else ""}
        row["stacks"] = {s.name: [s.group.layers, s.kept] for s in found.stacks}
        row["whole"] = [w.split(" ", 1)[0] for w in found.warnings if w.endswith("kept whole")]
        row["builds"] = builder.builds
        row["each_layer"] = _each_layer(builder, found) if each else ""
    except Refused as error:
        row |= {"outcome": "refused" if row["outcome"] == "failed" else "not built", "why": error.message}
    except DistdbgError as error:
        row["why"] = error.message
    except Exception as error:
        row["why"] = f"{type(error).__name__}: {str(error)[:160]}"
    except TooLongError as error:
        row |= {"outcome": "failed", "why": str(error)}
    signal.setitimer(signal.ITIMER_PROF, 0)
    return row | {"seconds": round(time.monotonic() - begin, 2)}


def _imported_once() -> None:
    """What nearly every type needs, before the copies are made: each would import it again."""
    for name in ("shrink_stored", "transformers.generation.utils", "transformers.integrations",
                 "transformers.trainer_utils", "transformers.models.auto.modeling_auto",
                 "transformers.models.auto.tokenization_auto", "transformers.models.auto.processing_auto",
                 "torch.fx.experimental.symbolic_shapes"):  # fmt: skip
        importlib.import_module(name)
    resolve_name("torch:set_num_threads")(
        1
    )  # models this small: a second thread would only wait for the first, at work
    gc.freeze()  # what is there stays: looking through it again takes a part of each copy's time
    gc.set_threshold(*SELDOM)


def _apart(model_type: str) -> dict[str, Any]:
    """In a copy of this process: what one type leaves behind, or dies of, is not the next one's."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="distdbg-sweep-") as folder:
        answer = Path(folder, "row")
        copy = os.fork()
        if copy == 0:
            tempfile.tempdir = folder
            answer.write_text(json.dumps(_stored(model_type)), encoding="utf-8")
            os._exit(0)
        _, status = os.waitpid(copy, 0)
        if status:
            row = {"type": model_type, "outcome": "not done", "why": f"its process ended with status {status}"}
        else:
            row = json.loads(answer.read_text(encoding="utf-8"))
    return row | {"seconds": round(time.monotonic() - begin, 2)}


def _stored(model_type: str) -> dict[str, Any]:
    from shrink_stored import look_stored

    signal.setitimer(signal.ITIMER_PROF, SECONDS_A_TYPE)
    signal.alarm(4 * SECONDS_A_TYPE)  # one that waits uses no time of its own: the process ends
    try:
        return look_stored(model_type)
    except TooLongError as error:
        return {"type": model_type, "outcome": "not done", "why": str(error)}
    except Exception as error:
        return {"type": model_type, "outcome": "wrong", "why": f"{type(error).__name__}: {error}"}


def stored_lines(rows: list[dict[str, Any]]) -> Iterator[str]:
    """As docs/shrink.md shows it: counts by result, each refusal, and why the others were not built."""
    count = Counter(row["outcome"] for row in rows)
    outside = count["not built"] + count["not done"]
    done = max(1, len(rows) - outside)
    yield "| types | not built here | right | refused, with the reason | wrong |"
    yield "|---|---|---|---|---|"
    shares = (f"{count[o]} ({100 * count[o] / done:.1f} %)" for o in ("right", "refused", "wrong"))
    yield f"| {len(rows)} | {outside} | {' | '.join(shares)} |"
    for what in ("forward", "generate"):
        ran = Counter(
            row.get(what, "not run").partition(":")[0] for row in rows if row["outcome"] in ("right", "wrong")
        )
        yield f"{what}: {', '.join(f'{number} {word}' for word, number in sorted(ran.items()))}"
    yield from _reasons(rows, ("wrong", "refused"), str)
    yield from _reasons(rows, ("not built", "not done"), _in_a_word)


def _reasons(rows: list[dict[str, Any]], outcomes: tuple[str, ...], called: Callable[[str], str]) -> Iterator[str]:
    found: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        if row["outcome"] in outcomes:
            found[f"{row['outcome']}: {called(row['why'])}"].append(row["type"])
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
        return "transformers has no model class for the type by itself"
    if needs := re.search(r"requires the (\w+) library", why):
        return f"needs {needs[1]}"
    if "too large" in why or "longer than" in why:
        return why.removeprefix("Refused: ")
    return "its default values, or these made narrow, do not go together"


def _each_layer(builder: Builder, found: ShrunkModel) -> str:
    stacks = []
    for stack in found.stacks:
        kinds = [[i for i, one in enumerate(stack.kinds) if one == kind] for kind in sorted(set(stack.kinds))]
        stacks += [KeptStack(path, stack.group.layers, stack.kept, {}, kinds) for path in stack.group.stacks]
    model = on_meta(builder)
    return compare(model, model, stacks)["each_layer"] if stacks else ""


def _builder(model_type: str) -> Builder:
    import transformers

    config = transformers.CONFIG_MAPPING[model_type]()
    builder = Builder(config, model_class(config, None, False))
    found = builder.anatomy(builder.full)
    if isinstance(found, Exception):
        raise found
    return builder


def _too_long(*_: object) -> None:
    raise TooLongError(f"longer than {SECONDS_A_TYPE} s")


if __name__ == "__main__":
    main()
