"""Tensors that are sent between ranks as pickled objects."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from distdbg.evidence.ops import COLLECTIVE, OPERATIONS
from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.script import argument, names_in
from distdbg.model import Severity

#: collectives of objects; with `…_gather_object` a list for the results comes first
_SENDS = {op.name for op in OPERATIONS if op.of_objects and op.kind == COLLECTIVE}

#: without these words there is nothing to check
NEEDS = (_SENDS, re.compile(r"^state_dict\($|^torch$|^detach\($"))

_STATE = {"state_dict", "named_parameters", "parameters"}
_TENSOR = re.compile(r"^torch\.(?:cat|stack|concat|zeros|ones|full|tensor|as_tensor|empty|rand\w*|vstack|hstack)$")
#: what is small afterwards
_SMALL = {"item", "tolist", "len", "shape", "size", "keys", "mean", "sum", "max", "min", "norm"}


def check(context: Context) -> Iterator[Hit]:
    for call in context.script.calls(*_SENDS):
        name = context.script.call_names[call]
        last = context.script.last_names[call]
        lists = last.endswith("_list")
        sent = argument(call, 1 if last.startswith("all_") else 0, "object_list" if lists else "obj")
        if sent is None or not name.startswith("torch.distributed."):
            continue
        made = [sent, *(v for part in _parts(sent) for v in context.values.bound(part))]
        large = [(v, context.script.within(v, ast.Call)) for v in made if not _SMALL & names_in(v)]
        state = next((v for v, calls in large if any(context.script.last_names[c] in _STATE for c in calls)), None)
        tensors = (v for v, calls in large if any(_TENSOR.match(context.script.call_names[c]) for c in calls))
        value = state if state is not None else next(tensors, None)
        if value is not None:
            what = "a whole state_dict" if state is not None else "a tensor"
            text = f"{what} is pickled, copied to the host and sent as an object by every rank that sends"
            severity: Severity = "warning" if state is not None else "info"
            yield Hit(call, text, severity=severity, related=((value, "made here"),))


def _parts(sent: ast.expr) -> list[ast.expr]:
    """The names that are sent: `x`, those in `[x, y]` and in `{"a": x}`."""
    if isinstance(sent, (ast.List, ast.Tuple)):
        return [e for e in sent.elts if isinstance(e, (ast.Name, ast.Attribute))]
    if isinstance(sent, ast.Dict):
        return [v for v in sent.values if isinstance(v, (ast.Name, ast.Attribute))]
    return [sent]
