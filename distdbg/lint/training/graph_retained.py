"""A value that carries the autograd graph is kept from step to step."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.events import carrier
from distdbg.lint.script.kept import FREES, LOSS, carries, is_name, keeping, terms
from distdbg.lint.script.script import Function, Loop, last_word, names_in

REAL_MISTAKES = 22
NEEDS = (re.compile(r"^backward\($|loss", re.IGNORECASE),)


def check(context: Context) -> Iterator[Hit]:
    if ".backward(" not in context.script.text:
        return
    seen: set[tuple[Loop, str]] = set()
    for event in _backwards(context):
        kept = carrier(event)
        loops = context.script.loops_around(event)
        loop = loops[0] if loops else None
        if kept is None or loop is None or (loop, kept) in seen:
            continue
        seen.add((loop, kept))
        yield from _kept(context, loop, kept, event)
        for output in _outputs(context, loop, kept):
            yield from (hit for hit in _kept(context, loop, output, event) if isinstance(hit.node, ast.Call))
        for part in _parts(context, loop, kept):
            yield from _kept(context, loop, part, event)
        yield from _by_a_method(context, loop, kept, event)
    yield from _returned(context)


def _made_of(context: Context, function: Function, name: str) -> set[str]:
    """Names that say loss, which this one was made of in the function by arithmetic: they carry the graph, too."""
    found = {name}
    assigned = context.script.within(function, ast.Assign)
    bound: set[str] = set()
    for one in reversed(assigned):
        if isinstance(one.value, ast.BinOp) and any(is_name(t, n) for t in one.targets for n in found):
            bound = bound or {n.id for a in assigned for t in a.targets for n in ast.walk(t) if isinstance(n, ast.Name)}
            found |= {n.id for n in terms(one.value) if n.id in bound and LOSS.search(n.id)}
    return found - {name}


def _by_a_method(context: Context, loop: Loop, kept: str, backward: ast.Call) -> Iterator[Hit]:
    """`meter.update(loss)` of a class here that adds what it is given to an attribute, or appends it."""
    script = context.script
    if any(is_name(t, kept) and names_in(a.value) & FREES for a in script.within(loop, ast.Assign) for t in a.targets):
        return
    for call in script.within(loop, ast.Call):
        given = next((place for place, one in enumerate(call.args) if is_name(one, kept)), None)
        if given is None or not isinstance(call.func, ast.Attribute) or context.loops.without_grad(call):
            continue
        for function in context.values.callees(call):
            names = [a.arg for a in function.args.args if a.arg not in ("self", "cls")]
            if script.class_of(function) is None or given >= len(names):
                continue
            for node, target in _kept_by_self(context, function, names[given]):
                text = f"{script.source(target)} keeps what it is given with its graph: memory grows with every step"
                yield Hit(node, text, related=((call, "is given the loss"), (backward, "which carries a graph")))


def _kept_by_self(context: Context, method: Function, name: str) -> Iterator[tuple[ast.AST, ast.expr]]:
    """Where a method keeps this parameter, with its graph, in an attribute of self; and the attribute."""
    script = context.script
    if any(name in names_in(a) and names_in(a.value) & FREES for a in script.within(method, ast.Assign)):
        return
    for node in script.within(method, ast.AugAssign, ast.Call):
        value, target = keeping(node)
        if value is None or not isinstance(target, ast.Attribute) or context.loops.without_grad(node):
            continue
        words = names_in(value)
        if last_word(target.value) == "self" and name in words and not words & FREES:
            yield node, target


def _parts(context: Context, loop: Loop, loss: str) -> list[str]:
    """`ce` and `kl` of `loss = ce + 0.1 * kl`: names that say loss, which the loop makes anew."""
    assigned = [a for a in context.script.within(loop, ast.Assign) if any(is_name(t, loss) for t in a.targets)]
    made = {
        n.id
        for a in context.script.within(loop, ast.Assign)
        for t in a.targets
        for n in ast.walk(t)
        if isinstance(n, ast.Name)
    }
    sums = [a.value for a in assigned if isinstance(a.value, ast.BinOp)]
    parts = {n.id for s in sums for n in terms(s) if LOSS.search(n.id) and n.id != loss and n.id in made}
    return sorted(parts)


def _returned(context: Context) -> Iterator[Hit]:
    """A function goes backward and returns the loss as it is; the loop that calls it keeps what it gets."""
    script = context.script
    seen: set[tuple[Function, str]] = set()
    for backward in _backwards(context):
        name, function = carrier(backward), script.function_of(backward)
        if name is None or function is None or (function, name) in seen or script.loops_around(backward):
            continue
        seen.add((function, name))
        for one in sorted({name, *_made_of(context, function, name)}):
            if not FREES & _rebound(context, function, one):
                yield from _kept_by_callers(context, function, one, backward)


def _kept_by_callers(context: Context, function: Function, name: str, backward: ast.Call) -> Iterator[Hit]:
    script = context.script
    returns = [r.value for r in script.within(function, ast.Return) if script.function_of(r) is function]
    for call in context.values.callers.get(function, []) if returns and all(returns) else []:
        loop = next(iter(script.loops_around(call)), None)
        statement = script.parents[call]
        if loop is None:
            continue
        if isinstance(statement, ast.Assign) and statement.value is call:
            kept = [_received(r, name, statement.targets[0]) for r in returns if r is not None]
            if kept and kept[0] and len(set(kept)) == 1:
                yield from _kept(context, loop, kept[0], backward)
        elif all(is_name(r, name) for r in returns if r is not None):
            yield from _kept_at_once(context, loop, call, backward)


def _rebound(context: Context, function: Function, name: str) -> set[str]:
    """Words of what the name is bound to in the function: `item` of `loss = loss.item()`."""
    its = [a for a in context.script.within(function, ast.Assign) if any(is_name(t, name) for t in a.targets)]
    last = max(its, key=context.script.begin.__getitem__, default=None)
    return names_in(last.value) if last is not None else set()


def _received(returned: ast.expr, name: str, target: ast.expr) -> str:
    """The name at the caller that gets what `name` is in the function."""
    if is_name(returned, name) and isinstance(target, ast.Name):
        return target.id
    if isinstance(returned, ast.Tuple) and isinstance(target, ast.Tuple) and len(returned.elts) == len(target.elts):
        both = zip(returned.elts, target.elts, strict=True)
        return next((t.id for r, t in both if is_name(r, name) and isinstance(t, ast.Name)), "")
    return ""


def _kept_at_once(context: Context, loop: Loop, call: ast.Call, backward: ast.Call) -> Iterator[Hit]:
    """`losses.append(step(batch))`, `total += step(batch)`."""
    node = context.script.parents[call]
    value, target = keeping(node)
    if value is not call or target is None or context.loops.without_grad(node):
        return
    if _outlives(context, loop, target) and not _summed_for_backward(context, target):
        text = (
            f"what this returns is kept in {context.script.source(target)} with its graph: memory grows with every step"
        )
        yield Hit(node, text, related=((backward, "it carries a graph"),))


def _outputs(context: Context, loop: Loop, loss: str) -> Iterator[str]:
    """What a model has given in the loop, and the loss is made of by one call."""
    script, made = context.script, dict[str, ast.Call]()
    for assigned in script.within(loop, ast.Assign):
        match assigned:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call):
                made[name] = call
    given = [a.id for a in made[loss].args if isinstance(a, ast.Name)] if loss in made else []
    for name in given:
        if name in made and any(_is_model(context, s) for s in context.values.sites(made[name].func)):
            yield name


def _is_model(context: Context, site: ast.Call) -> bool:
    owner = context.values.class_named(site.func)
    of_this_file = owner is not None and context.script.is_module(owner)
    return context.values.kind(site) in ("ddp", "fsdp", "module") or of_this_file


def _backwards(context: Context) -> list[ast.Call]:
    return [n for n in context.events.of("backward") if isinstance(n, ast.Call)]


def _kept(context: Context, loop: Loop, carrier: str, backward: ast.Call) -> Iterator[Hit]:
    script = context.script
    for node in script.within(loop, ast.Call, ast.AugAssign, ast.Assign):
        if script.scopes[node] is not script.scopes[loop] or script.loops_around(node)[:1] != [loop]:
            continue
        value, target = keeping(node)
        if value is None or target is None or not carries(value, carrier):
            continue
        # around a loop over micro-batches, the loop that steps
        around = [outer for outer in script.loops_around(loop)[:1] if context.loops.trains(outer)]
        step = around[0] if around and not context.loops.trains(loop) else loop
        # a list that each batch makes anew holds the graphs of that batch only
        step = next((outer for outer in script.loops_around(loop) if context.loops.kinds[outer] == "batch"), step)
        if not _outlives(context, step, target) or _summed_for_backward(context, target):
            continue
        if _freed_before(context, loop, node, carrier) or context.loops.without_grad(node):
            continue
        yield Hit(
            node,
            f"{carrier} is kept in {script.source(target)} with its graph: memory grows with every step",
            "certain" if isinstance(value, ast.Name) and not isinstance(node, ast.Assign) else "likely",
            related=((backward, "it carries a graph"),),
        )


def _outlives(context: Context, loop: Loop, target: ast.expr) -> bool:
    """It is not made anew inside the loop, nor is what holds it."""
    if isinstance(target, (ast.Subscript, ast.Attribute)) and not _outlives(context, loop, target.value):
        made = [n for n in ast.walk(target.value) if isinstance(n, ast.Name)]
        if made and made[0].id != "self":
            return False
    key = context.values.key(target)
    if key is None:
        return isinstance(target, ast.Subscript) and _outlives(context, loop, target.value)
    for assigned in context.script.within(loop, ast.Assign, ast.AnnAssign):
        targets = assigned.targets if isinstance(assigned, ast.Assign) else [assigned.target]
        stored = [n for t in targets for n in ast.walk(t) if isinstance(getattr(n, "ctx", None), ast.Store)]
        if any(context.values.key(n) == key for n in stored) and keeping(assigned)[0] is None:
            return False
    made = [n for n in ast.walk(target) if isinstance(n, ast.Name)]
    return bool(made)


def _summed_for_backward(context: Context, target: ast.expr) -> bool:
    """The sum itself goes backward, once the loop is over or in it."""
    name = context.script.source(target)
    root = re.split(r"[\[.]", name)[0]
    carriers = {carrier(call) for call in _backwards(context)}
    for assigned in context.script.all(ast.Assign):  # the loss is made of it
        targets = {t.id for t in assigned.targets if isinstance(t, ast.Name)}
        if targets & carriers and root in names_in(assigned.value) and root != "self":
            return True
    for call in _backwards(context):
        owner = call.func.value if isinstance(call.func, ast.Attribute) else call
        words = names_in(owner) | set().union(*(names_in(a) for a in call.args))
        if root in words and root != "self":
            return True
    return False


def _freed_before(context: Context, loop: ast.AST, node: ast.AST, carrier: str) -> bool:
    """`loss = loss.item()`, `output['loss'] = output['loss'].detach()` above it in the loop."""
    script = context.script
    for assigned in script.within(loop, ast.Assign):
        if script.begin[assigned] >= script.begin[node]:
            break
        for target in assigned.targets:
            root = target
            while isinstance(root, ast.Subscript):
                root = root.value
            if isinstance(root, ast.Name) and root.id == carrier and names_in(assigned.value) & FREES:
                return True
    return any(
        isinstance(c.func, ast.Attribute) and c.func.attr == "detach_" and carrier in names_in(c.func.value)
        for c in script.within(loop, ast.Call)
    )
