"""A state_dict that is saved from the wrapper: every key begins with `module.`."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.origins import made_of
from distdbg.lint.script.script import Key, receiver
from distdbg.protocol.names import CHANGES_PREFIX

#: functions that save what they are given
_SAVES = re.compile(r"(?:^|\.)(?:_?save(?:_on_master|_file|_checkpoint|_model|_ckpt)?)$")
_SAVE_WORDS = re.compile(r"^_?save(?:_on_master|_file|_checkpoint|_model|_ckpt)?\($")
#: somewhere the prefix is taken off, or put on
_TAKEN_OFF = re.compile(CHANGES_PREFIX)

REAL_MISTAKES = 5
#: without these words there is nothing to check
NEEDS = ({"state_dict("}, {"DistributedDataParallel", "DDP", "prepare("}, _SAVE_WORDS)


def check(context: Context) -> Iterator[Hit]:
    script = context.script
    accelerated = "accelerate" in context.frameworks
    if not (context.values.of_kind("ddp") or accelerated) or _TAKEN_OFF.search(script.text):
        return
    saves = _Saves(context)
    for call in script.calls("state_dict"):
        owner = receiver(call)
        if not isinstance(owner, (ast.Name, ast.Attribute)) or getattr(owner, "attr", "") == "module":
            continue
        wrap = next((w for w in _wraps(context, owner, call)), None)
        reached = saves.of(call)
        if wrap is None or not reached:
            continue
        sure = _is_the_wrapper(context, owner, call) and any(script.call_names[s] == "torch.save" for s in reached)
        if not sure and (_resumed(context, owner, wrap) or _taken_out(context, owner)):
            continue
        text = "this saves the wrapper's state_dict: every key begins with `module.`"
        if not sure:
            text = "where this is the wrapper of several ranks, every key that is saved begins with `module.`"
        yield Hit(
            call,
            text,
            "likely" if sure else "possible",
            related=((wrap, "wrapped here"),),
        )


def _wraps(context: Context, owner: ast.expr, call: ast.Call) -> Iterator[ast.Call]:
    """Where the object is wrapped: by DDP, or by Accelerate's `prepare`, among others."""
    key = context.values.key(owner)
    if key is None or any(isinstance(a.value, ast.Attribute) for a in context.values.assignments(owner)):
        return  # `model = model.module`
    for assigned in context.script.all(ast.Assign):
        value = assigned.value
        if not isinstance(value, ast.Call) or context.script.begin[value] > context.script.begin[call]:
            continue
        targets = [one for t in assigned.targets for one in (t.elts if isinstance(t, ast.Tuple) else [t])]
        if key not in map(context.values.key, targets):
            continue
        name = context.script.call_names[value]
        if context.values.kind(value) == "ddp" or re.search(r"accelerator\.prepare(?:_model)?$", name):
            yield value
        else:
            unwraps = context.script.last_names[value] in ("unwrap_model", "unwrap", "getattr")
            if unwraps:
                return
    if isinstance(owner, ast.Attribute):  # `Learner(DDP(net))`
        yield from context.values.sites(owner, "ddp")


def _taken_out(context: Context, owner: ast.expr) -> bool:
    """`model.module` somewhere: the file knows which of the two it has."""
    key = context.values.key(owner)
    inner = (a.value for a in context.script.all(ast.Attribute) if a.attr == "module")
    return any(context.values.key(one) == key for one in inner) or "unwrap" in context.script.text


def _resumed(context: Context, owner: ast.expr, wrap: ast.Call) -> bool:
    """The wrapper loads it again: both sides have the prefix."""
    key = context.values.key(owner)
    loads = (c for c in context.script.calls("load_state_dict") if context.script.begin[c] > context.script.begin[wrap])
    return any((by := receiver(c)) is not None and context.values.key(by) == key for c in loads)


def _is_the_wrapper(context: Context, owner: ast.expr, call: ast.Call) -> bool:
    """Bound to nothing but the wrapper, or bound to it above in the same function."""
    bound = context.values.assignments(owner)
    wraps = [a for a in bound if isinstance(a.value, ast.Call) and context.values.kind(a.value) == "ddp"]
    if not wraps or any(isinstance(a.value, ast.Attribute) for a in bound):
        return False
    unconditional = [a for a in wraps if not any(isinstance(o, ast.If) for o in context.script.above(a))]
    return bool(unconditional) and context.script.begin[unconditional[0]] < context.script.begin[call]


class _Saves:
    """The calls that save, by what they save: expressions that a state_dict may be a part of, and variables."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._by_part: dict[ast.AST, list[ast.Call]] = defaultdict(list)
        self._by_variable: dict[Key, list[ast.Call]] = defaultdict(list)
        for save, name in context.script.call_names.items():
            if _SAVES.search(name):
                for part in (save, *(made_of(context, save.args[0]) if save.args else ())):
                    self._by_part[part].append(save)
                for key in filter(None, map(context.values.key, save.args)):
                    self._by_variable[key].append(save)

    def of(self, state: ast.Call) -> list[ast.Call]:
        """Those that save this state_dict: in their arguments, in a variable that they are given, as an entry of it."""
        script, values = self._context.script, self._context.values
        statement = script.statement_of(state)
        if isinstance(statement, ast.Return):  # `torch.save(self.state_dict())`
            function = script.function_of(statement)
            ways = [state, *(values.callers.get(function, []) if function is not None else [])]
            outer = [part for way in ways for part in (way, *script.above(way)) if isinstance(part, ast.Call)]
            return [call for call in outer if call in self._by_part.get(call, ())]
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        keys = [values.key(t.value if isinstance(t, ast.Subscript) else t) for t in targets]
        inside = [save for part in (state, *script.above(state)) for save in self._by_part.get(part, ())]
        return inside + [save for key in keys if key is not None for save in self._by_variable.get(key, ())]
