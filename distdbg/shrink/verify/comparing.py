"""Compare the small model's measurements with the large one's, layer by layer."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from distdbg.plain_text import first_words
from distdbg.shrink.probe.building import brief, in_short
from distdbg.shrink.verify.inputs import inputs_for
from distdbg.shrink.verify.kept import PASS, KeptStack, each_layer, has_passed
from distdbg.shrink.verify.measuring import Measured, measure


def compare(full: Any, small: Any, stacks: Sequence[KeptStack]) -> dict[str, str]:
    """Check -> `pass`, `fail: …`, `warning: …` or `not run, because …`. Both models are on the meta device.

    A stack that the model's own forward does not reach (a vision tower without an image) is measured by itself, with
    the input that its own part of the model takes.
    """
    verdicts: dict[str, dict[str, str]] = {"ops": {}, "activation_bytes": {}, "gradients": {}, "each_layer": {}}
    todo = list(stacks)
    parts = [""]
    while todo and parts:
        part = parts.pop(0)
        inside = [s for s in todo if not part or s.path.startswith(f"{part}.")]
        called = part or "the model"
        try:
            a = _measured(full, part, inside, whole=True)
        except Exception as error:
            for stack in inside:
                verdicts["ops"][stack.path] = f"not run, because forward of {called} raised {in_short(error)}"
            reached = []
        else:
            reached = [s for s in inside if any(p.startswith(f"{s.path}.") for p in a.ops)]
            try:
                b = _measured(small, part, inside, whole=False)
            except Exception as error:
                for stack in reached or inside:
                    verdicts["ops"][stack.path] = f"fail: forward of {called} raises {brief(error)}"
                break
            _judge(a, b, reached, part, verdicts)
        todo = [s for s in todo if s not in reached]
        if not part:
            parts = list(dict.fromkeys(_owner(full, s.path) for s in todo) if todo else ())
            parts = [p for p in parts if p]
    for stack in todo:  # also where a forward of the small model raised: that is said of its stacks
        verdicts["ops"].setdefault(stack.path, "not run, because no input reaches it")
    return {check: _summary(found, stacks, verdicts["ops"]) for check, found in verdicts.items()}


def _measured(model: Any, part: str, stacks: Sequence[KeptStack], *, whole: bool) -> Measured:
    layers = [f"{s.path}.{i}" for s in stacks for i in range(s.layers if whole else len(s.kept))]
    call = model.get_submodule(part) if part else model
    model.zero_grad(set_to_none=True)
    return measure(model, call, inputs_for(call), layers)


def _judge(
    full: Measured, small: Measured, stacks: Sequence[KeptStack], part: str, verdicts: dict[str, dict[str, str]]
) -> None:
    for stack in stacks:
        pairs = [(f"{stack.path}.{old}", f"{stack.path}.{new}") for new, old in enumerate(stack.kept)]
        counts: Callable[[Counter[str]], Counter[str]] = lambda ops: _without_count(ops, stack)  # noqa: B023, E731
        verdicts["ops"][stack.path] = _equal(pairs, {k: counts(v) for k, v in full.ops.items()},
                                             {k: counts(v) for k, v in small.ops.items()}, "operators")  # fmt: skip
        verdicts["activation_bytes"][stack.path] = _equal(pairs, full.saved, small.saved, "bytes kept for backward")
        verdicts["gradients"][stack.path] = _gradients(full, small, stack, part)
        got: dict[str, set[str]] = defaultdict(set)
        for name in full.gradients:
            if name.startswith(f"{stack.path}."):
                number, _, rest = name[len(stack.path) + 1 :].partition(".")
                got[f"{stack.path}.{number}"].add(rest)
        verdicts["each_layer"][stack.path] = each_layer(stack, {
            "operators": full.ops, "bytes kept for backward": full.saved, "parameters that get a gradient": got,
        })  # fmt: skip


def _without_count(ops: Counter[str], stack: KeptStack) -> Counter[str]:
    """A tensor with an entry a layer is the same tensor with fewer."""
    return Counter({re.sub(rf"\b({stack.layers}|{len(stack.kept)})\b", "L", k): v for k, v in ops.items()})


def _equal(pairs: list[tuple[str, str]], full: Mapping[str, Any], small: Mapping[str, Any], what: str) -> str:
    for old, new in pairs:
        a, b = full.get(old), small.get(new)
        if a != b:
            return f"fail: {what} of {new} are not those of {old} in the full model ({_difference(a, b)})"
    return PASS


def _difference(a: Any, b: Any) -> str:
    if isinstance(a, Counter) and isinstance(b, Counter):
        found = list((a - b).elements())[:1] + list((b - a).elements())[:1]
        return first_words("; ".join(found), 160)
    return f"{a} there, {b} here"


def _gradients(full: Measured, small: Measured, stack: KeptStack, part: str) -> str:
    if full.why_no_gradients:
        return f"not run, because backward of {part or 'the model'} raised {full.why_no_gradients}"
    if small.why_no_gradients:
        return f"fail: backward of {part or 'the small model'} raises {small.why_no_gradients}"
    start = f"{stack.path}."
    there = {new: n for n in full.gradients if n.startswith(start) for new in stack.here(n)}
    odd = sorted(there.keys() ^ {n for n in small.gradients if n.startswith(start)})
    if not odd:
        return PASS
    unlike = there.get(odd[0], "what it stands for")
    return f"fail: {odd[0]} gets {'no' if odd[0] in there else 'a'} gradient; {unlike} was unlike it"


def _summary(found: Mapping[str, str], stacks: Sequence[KeptStack], ops: Mapping[str, str]) -> str:
    """The worst that a check has to say of any stack."""
    of_stacks = {s.path: found.get(s.path, ops.get(s.path, "")) for s in stacks}
    said = [f"{path}: {v}" for path, v in of_stacks.items() if not has_passed(v)]
    for worst in ("fail", "warning"):
        found_so = [v for v in said if f": {worst}: " in v]
        if found_so:
            return f"{worst}: {found_so[0].replace(f': {worst}: ', ': ', 1)}"
    if said:
        return f"not run, because {'; '.join(v.replace('not run, because ', '', 1) for v in said)}"
    besides = [v.removeprefix(f"{PASS}; ") for v in of_stacks.values() if v != PASS]
    return "; ".join([PASS, *besides])


def _owner(model: Any, path: str) -> str:
    """The innermost part with a config of its own that holds this stack."""
    parts = path.split(".")
    for end in range(len(parts) - 1, 0, -1):
        inner = ".".join(parts[:end])
        if hasattr(model.get_submodule(inner), "config") and hasattr(model.get_submodule(inner), "main_input_name"):
            return inner
    return ""
