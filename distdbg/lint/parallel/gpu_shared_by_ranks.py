"""Every rank is put on one and the same GPU, by a number that is written down."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.script import argument, receiver

#: each rank sees a GPU of its own
UNLESS = re.compile(r"CUDA_VISIBLE_DEVICES|SLURM_|gpus[-_]per[-_]task|gpu-bind")

REAL_MISTAKES = 3
#: without these words there is nothing to check
NEEDS = (
    {"init_process_group"},
    {"set_device", "device_ids", "DistributedDataParallel", "DDP", "FullyShardedDataParallel", "FSDP", "fully_shard"},
)

#: a GPU of its own for each rank
_OWN = re.compile(
    r"set_device|cuda:\{|cuda\(\s*\w*\.?\w*rank|to\(\s*\w*\.?\w*rank|device_ids\s*=|device\(\s*[\"']cuda[\"']\s*,|device\(\s*\w*rank"
)


def check(context: Context) -> Iterator[Hit]:
    script = context.script
    if context.frameworks or not script.calls("init_process_group"):
        return
    chosen: list[ast.Call] = []
    for call in script.calls("set_device"):
        given = argument(call, 0, "device")
        if script.call_names[call] == "torch.cuda.set_device" and _is_number(given):
            chosen.append(call)
    for wrap in context.values.of_kind("ddp"):
        match argument(wrap, 1, "device_ids"):
            case ast.List(elts=[one]) if _is_number(one):
                chosen.append(wrap)
    on_one = list(_model_on_one_gpu(context)) if not chosen and not _OWN.search(script.text) else []
    yield from on_one
    for call in chosen:
        if not context.ranks.guarded(call) and not _is_fallback(context, call):
            yield Hit(call, f"{script.source(call)[:60]} puts every rank of a node on one GPU")


def _is_fallback(context: Context, call: ast.Call) -> bool:
    """`try: set_device(index)` … `except ValueError: set_device(0)`: a job of several ranks takes the first way."""
    script = context.script
    for outer in script.above(call):
        if isinstance(outer, ast.ExceptHandler):
            tried = script.parents[outer]
            first = [c for s in getattr(tried, "body", []) for c in script.within(s, ast.Call)]
            return any(script.last_names[c] == script.last_names[call] for c in first)
    return False


def _model_on_one_gpu(context: Context) -> Iterator[Hit]:
    """A model that DDP wraps is moved to `cuda:0`, by that name or by a variable, and nothing chooses another GPU."""
    script, values = context.script, context.values
    for wrap in values.of_kind("ddp"):
        if not wrap.args or not script.call_names[wrap].startswith("torch."):
            continue
        model = wrap.args[0]
        made = values.sites(model) | {c for a in values.bound(model) for c in script.within(a, ast.Call)}
        for call in script.calls("to", "cuda"):
            moved = receiver(call)
            if moved is None or context.ranks.guarded(call):
                continue
            same = values.key(moved) == values.key(model) is not None
            if not same and call not in made and not made & values.sites(moved):
                continue
            given = argument(call, 0, "device")
            written = [given, *(values.bound(given) if isinstance(given, (ast.Name, ast.Attribute)) else ())]
            if any(_is_number(one) or _is_first(one) for one in written):
                text = f"{script.source(call)[:60]} puts the model of every rank on one GPU"
                yield Hit(call, text, related=((wrap, "wrapped for several ranks"),))
                return


def _is_first(node: ast.expr | None) -> bool:
    """`torch.device("cuda:0")`, also as one way of `… if torch.cuda.is_available() else "cpu"`."""
    match node:
        case ast.Call(func=ast.Attribute(attr="device"), args=[inner]):
            return _is_number(inner) or _is_first(inner)
        case ast.IfExp(body=body):
            return _is_number(body) or _is_first(body)
    return False


def _is_number(node: ast.expr | None) -> bool:
    match node:
        case ast.Constant(value=int() as value):
            return not isinstance(value, bool)
        case ast.Constant(value=str(text)):
            return re.fullmatch(r"cuda:\d+", text) is not None
    return False
