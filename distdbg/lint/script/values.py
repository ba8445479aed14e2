"""Find the samplers, loaders, models, optimizers, … that an expression may be, followed through the whole file.

Every constructor that matters is a *site*. Sites flow along assignments, attributes of `self`, arguments, returned
values, tuples, generators, iterators and wrappers such as `tqdm` or `torch.compile`, always forwards: what a helper is
called with does not mix with what others pass to it. Order is not looked at, so an answer is "may be".
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property

from distdbg.lint.script.annotations import annotated_classes
from distdbg.lint.script.callees import Callees, by_super, is_called_by_python
from distdbg.lint.script.inherited import inherited_kind
from distdbg.lint.script.kinds import ATTRIBUTES, METHODS, PREPARED, WRAPPERS, kind_by_name
from distdbg.lint.script.leads import CallsThatLead, by_an_object
from distdbg.lint.script.loaders import SAMPLERS, samplers_of
from distdbg.lint.script.script import FUNCTIONS, Function, Key, Script, argument, last_word

Source = Key | ast.Call

_NOWHERE = (ast.Module([], []), "")


class ValueFlow:
    def __init__(self, script: Script) -> None:
        self.script = script
        self.classes = {(script.module_of(c), c.name): c for c in script.all(ast.ClassDef)}
        self.functions: dict[tuple[ast.Module, str], list[Function]] = defaultdict(list)
        for function in script.all(*FUNCTIONS):
            if not isinstance(script.parents.get(function), ast.ClassDef):
                self.functions[script.module_of(function), function.name].append(function)
        linked = script.words_that_link
        self._may_be_class = {name for _, name in self.classes} | linked
        self._may_be_function = {name for _, name in self.functions} | linked
        self._sites: dict[Key, set[ast.Call]] = defaultdict(set)
        self._edges: dict[Key, set[Key]] = defaultdict(set)
        self._kind_of: dict[ast.Call, str] = {}
        self._callees: dict[ast.Call, list[Function]] = {}
        for call in script.all(ast.Call):
            if kind := self._kind(call):
                self._kind_of[call] = kind
        self._flowed = False
        #: what variables are called that may be an object of a class here; known once values have flowed
        self.words_of_objects: set[str] = set()
        self._resolved = Callees(self, self._may_be_function)
        #: links that depend on what an object is, which is found out while values flow
        self._of_objects: dict[tuple[ast.AST, Key], None] = {}

    def sites(self, node: ast.AST, kind: str = "") -> set[ast.Call]:
        """The constructor calls that `node` may be the result of, of one kind or of all."""
        if kind and kind not in self._kind_of.values():
            return set()
        self._flow()
        found: set[ast.Call] = set()
        for source in self._sources(node):
            found |= {source} if isinstance(source, ast.Call) else self._sites.get(source, set())
        return {s for s in found if self._kind_of.get(s) == kind or (not kind and self._kind_of.get(s) != PREPARED)}

    def of_kind(self, *kinds: str) -> list[ast.Call]:
        """The constructor calls of these kinds, kind by kind."""
        return [call for kind in kinds for call, its in self._kind_of.items() if its == kind]

    def kind(self, call: ast.Call) -> str:
        return self._kind_of.get(call, "")

    def callees(self, call: ast.Call) -> list[Function]:
        """Functions of this file that a call may run: by name, by `self`, by the class of an object, as a callback."""
        self._flow()
        if call not in self._callees:
            self._callees[call] = self._resolved.of(call)
        return self._callees[call]

    @cached_property
    def callers(self) -> dict[Function, list[ast.Call]]:
        """The calls that may run a function; of several those count that this script comes to."""
        found: dict[Function, list[ast.Call]] = defaultdict(list)
        for call in self.script.all(ast.Call):
            for function in self.callees(call):
                found[function].append(call)
                for other in self._resolved.overriding(call, function):
                    found[other].append(call)
        for function, calls in found.items():  # of a method that nobody is seen to call, `super().save()` shows little
            calls[:] = [c for c in calls if not by_super(c) or found.get(self.script.function_of(c) or function)]
        if not self.script.imported:
            return found
        run = {function: [call for call in calls if self._is_run(call, found)] for function, calls in found.items()}
        return {function: run[function] or calls for function, calls in found.items()}

    def _is_run(self, call: ast.Call, callers: dict[Function, list[ast.Call]]) -> bool:
        """Not in a function of another file that nobody here calls."""
        seen: set[ast.AST] = set()
        todo: list[ast.Call] = [call]
        while todo:
            function = self.script.function_of(todo.pop())
            if function is None or self.script.file_of(function) is self.script.file or is_called_by_python(function):
                return True
            if function not in seen:
                seen.add(function)
                todo += callers.get(function, [])
        return False

    def classes_of(self, node: ast.AST) -> list[ast.ClassDef]:
        """Classes of the linted files of which an object may be: one that is made there, `self`, else as annotated."""
        if isinstance(node, ast.Name) and node.id in ("self", "cls"):
            owner = self.script.class_of(node)
            return [owner] if owner is not None else []
        if isinstance(node, ast.Name) and (named := self.class_named(node)) is not None:
            return [named]
        key = self.key(node)
        at_once = isinstance(node, ast.Name) or (isinstance(node, ast.Attribute) and last_word(node.value) == "self")
        sources = [key] if at_once and key is not None else self._sources(node)
        sites = (site for s in sources for site in ([s] if isinstance(s, ast.Call) else self._sites.get(s, ())))
        found = dict.fromkeys(made for site in sites if (made := self.class_named(site.func)) is not None)
        annotated = self._annotated.get(key) if key is not None and not found else None
        return [annotated] if annotated is not None else list(found)

    @cached_property
    def _annotated(self) -> dict[Key, ast.ClassDef]:
        return dict(annotated_classes(self))

    def ways_to(self, node: ast.AST, deepest: int = 1000) -> Iterator[ast.AST]:
        """The node, the calls of the function that it is in, the calls of those functions, …; each function once."""
        seen: set[ast.AST] = set()
        level = [node]
        while level and deepest >= 0:
            yield from level
            functions = dict.fromkeys(self.script.function_of(one) for one in level)
            new = [function for function in functions if function is not None and function not in seen]
            seen.update(new)
            level = [call for function in new for call in self.callers.get(function, [])]
            deepest -= 1

    def key(self, node: ast.AST) -> Key | None:
        """What identifies a variable: a name in its scope, an attribute of self in its class, `opt['x']`, `args.x`."""
        if isinstance(node, ast.Name):
            scope = self.script.scopes[node]
            while not isinstance(scope, ast.Module) and node.id not in self._bound[scope]:
                scope = self.script.scopes[scope]
            return (scope, node.id)
        if isinstance(node, ast.Attribute):
            if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
                owner = self.script.class_of(node)
                return ("self", self.root_class(owner) if owner else "", node.attr)
            inner = self.key(node.value)
            return (inner, ".", node.attr) if inner else None
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and (inner := self.key(node.value)):
            return (inner, "[]", node.slice.value)
        return None

    def assignments(self, node: ast.AST) -> list[ast.Assign]:
        """The plain assignments that bind the variable."""
        key = self.key(node)
        return self._assigned.get(key, []) if key else []

    def bound(self, node: ast.AST) -> list[ast.expr]:
        """All values that are assigned to the variable, or added to it."""
        key = self.key(node)
        return [a.value for a in self._assigned.get(key, [])] + self._added.get(key, []) if key else []

    @cached_property
    def _added(self) -> dict[Key, list[ast.expr]]:
        found: dict[Key, list[ast.expr]] = defaultdict(list)
        for added in self.script.all(ast.AugAssign):
            key = self.key(added.target)
            if key is not None:
                found[key].append(added.value)
        return found

    @cached_property
    def _assigned(self) -> dict[Key, list[ast.Assign]]:
        found: dict[Key, list[ast.Assign]] = defaultdict(list)
        for assigned in self.script.all(ast.Assign):
            for key in dict.fromkeys(map(self.key, assigned.targets)):
                if key is not None:
                    found[key].append(assigned)
        return found

    def _kind(self, call: ast.Call) -> str:
        name = self.script.call_names[call]
        last = name.rpartition(".")[2]
        owner = self.class_named(call.func)
        if owner is not None:
            return inherited_kind(self, owner) or "instance"
        its = kind_by_name(name)
        if its and (its != "scheduler" or not self.functions_named(call.func)):
            return its
        return "module" if name.startswith("torch.nn.") and last[:1].isupper() else ""

    def class_named(self, node: ast.AST) -> ast.ClassDef | None:
        """The class of this name: one of the same file, or one that was joined from an import."""
        name = last_word(node)
        if name not in self._may_be_class:
            return None  # most names
        found = self.classes.get(self.script.linked(node) or _NOWHERE)
        return found or self.classes.get((self.script.module_of(node), name))

    def functions_named(self, node: ast.AST) -> list[Function]:
        name = last_word(node)
        if name not in self._may_be_function:
            return []  # most names
        found = self.functions.get(self.script.linked(node) or _NOWHERE, [])
        if not found and isinstance(node, ast.Name):
            found = self.functions.get((self.script.module_of(node), name), [])
        return found

    def root_class(self, owner: ast.ClassDef) -> ast.ClassDef:
        seen = {owner}
        while True:
            above = [c for b in owner.bases if (c := self.class_named(b)) is not None and c not in seen]
            if not above:
                return owner
            owner = above[0]
            seen.add(owner)

    @cached_property
    def _bound(self) -> dict[ast.AST, set[str]]:
        found: dict[ast.AST, set[str]] = defaultdict(set)
        script = self.script
        for name in script.all(ast.Name):
            if not isinstance(name.ctx, ast.Load):
                found[script.scopes[name]].add(name.id)
        for argument_ in script.all(ast.arg):
            found[script.scopes[argument_]].add(argument_.arg)
        for node in script.all(ast.Global, ast.Nonlocal):
            found[script.scopes[node]] -= set(node.names)
        return found

    def _flow(self) -> None:
        """Once, when the first question needs it."""
        if self._flowed:
            return
        self._flowed = True
        script = self.script
        for node in script.all(ast.Assign, ast.AnnAssign, ast.NamedExpr):
            if node.value is not None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in targets:
                    self._assign(target, node.value)
        for loop in script.all(ast.For, ast.AsyncFor):
            if isinstance(loop.target, ast.Name):
                self._assign(loop.target, loop.iter)
        for returned in script.all(ast.Return, ast.Yield, ast.YieldFrom):
            self._return(returned)
        for (module, dotted), origin in script.links.items():
            # `from data import loader`: what the name stands for there it stands for here
            for alias, whole in script.files[module].names.items():
                if whole == dotted:
                    self._edges[origin].add((module, alias))
        for call in script.calls("append"):
            if isinstance(call.func, ast.Attribute) and call.args and (key := self.key(call.func.value)):
                self._link(call.args[0], key)
        self._settle()

    def _settle(self) -> None:
        """Objects lead to methods, whose arguments lead to objects: until nothing new turns up, three times at most."""
        calls = list(filter(CallsThatLead(self).may, self.script.all(ast.Call)))
        for again in range(3):
            self._callees.clear()
            before = sum(map(len, self._edges.values()))
            for value, key in list(self._of_objects) if again else ():
                self._link(value, key)
            for call in calls if not again else filter(by_an_object, calls):
                self._pass_arguments(call)
            self._spread()
            if sum(map(len, self._edges.values())) == before:
                break
        self._callees.clear()
        objects = {site for site, kind in self._kind_of.items() if kind == "instance"}
        found = {key[-1] for key, sites in self._sites.items() if not sites.isdisjoint(objects)}
        self.words_of_objects = {word for word in found if isinstance(word, str)}

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            for number, one in enumerate(target.elts):
                if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts):
                    self._assign(one, value.elts[number])
                elif isinstance(value, ast.Call):
                    self._unpack(one, value, number, len(target.elts))
            return
        if key := self.key(target):
            self._link(value, key)

    def _unpack(self, target: ast.expr, value: ast.Call, number: int, count: int) -> None:
        key = self.key(target)
        if key is None:
            return
        last = self.script.last_names[value]
        if last in ("prepare", "initialize", "setup") and len(value.args) == count:
            self._link(value.args[number], key)
            self._sites[key] |= {value} if self.kind(value) == PREPARED else set()
        else:
            for function in self._resolved.by_name(value):
                self._edges["return", function, number].add(key)

    def _return(self, node: ast.Return | ast.Yield | ast.YieldFrom) -> None:
        """What a function returns or yields: an element of a container or of a generator stands for all of it."""
        function = self.script.function_of(node)
        if function is None or node.value is None:
            return
        if isinstance(node.value, ast.Tuple):
            for number, one in enumerate(node.value.elts):
                self._link(one, ("return", function, number))
        else:
            self._link(node.value, ("return", function))

    def _link(self, value: ast.AST, key: Key) -> None:
        kept = value.attr if isinstance(value, ast.Attribute) and last_word(value.value) != "self" else ""
        if kept in self._attributes or kept in SAMPLERS:
            self._of_objects[value, key] = None
        for source in self._sources(value):
            if isinstance(source, ast.Call):
                self._sites[key].add(source)
            elif source != key:
                self._edges[source].add(key)

    def _pass_arguments(self, call: ast.Call) -> None:
        for function in self.callees(call):
            arguments, given = function.args, list(call.args)
            names = [a.arg for a in (*arguments.posonlyargs, *arguments.args)]
            if names[:1] in (["self"], ["cls"]):
                names = names[1:]
            if self.script.last_names[call] == "spawn":
                packed = argument(call, 1, "args")
                given, names = (list(packed.elts) if isinstance(packed, ast.Tuple) else []), names[1:]
            elif function not in self._resolved.by_name(call) or self._resolved.bound_before(call):
                given = []  # passed as a callback, or bound to some arguments before: who knows with what
            for name, value in zip(names, given, strict=False):
                self._link(value, (function, name))
            for keyword in call.keywords:
                if keyword.arg:
                    self._link(keyword.value, (function, keyword.arg))

    @cached_property
    def _attributes(self) -> set[str]:
        """What is kept in an attribute of self by a class here."""
        stored = (n for n in self.script.all(ast.Attribute) if not isinstance(n.ctx, ast.Load))
        return {n.attr for n in stored if last_word(n.value) == "self"} if self.classes else set()

    def _spread(self) -> None:
        todo = list(self._sites)
        while todo:
            key = todo.pop()
            for after in self._edges.get(key, ()):
                if not self._sites[key] <= self._sites[after]:
                    self._sites[after] |= self._sites[key]
                    todo.append(after)

    def _sources(self, node: ast.AST) -> Iterator[Source]:
        todo = [node]
        while todo:
            one = todo.pop()
            if isinstance(one, ast.IfExp):
                todo += [one.body, one.orelse]
            elif isinstance(one, (ast.BoolOp, ast.Dict)):
                todo += one.values
            elif isinstance(one, (ast.List, ast.Tuple)):
                todo += one.elts
            elif isinstance(one, (ast.NamedExpr, ast.Await, ast.Starred)):
                todo.append(one.value)
            elif isinstance(one, ast.Call):
                yield from self._of_call(one, todo)
            else:
                if key := self.key(one):
                    yield key
                if isinstance(one, ast.Attribute):
                    yield from self._of_attribute(one, todo)
                elif isinstance(one, ast.Subscript):
                    todo.append(one.value)

    def _of_attribute(self, node: ast.Attribute, todo: list[ast.AST]) -> Iterator[Source]:
        if node.attr in ATTRIBUTES:
            todo.append(node.value)
        elif node.attr in SAMPLERS:
            todo += samplers_of(self, node.value)
        if node.attr in self._attributes and last_word(node.value) != "self":
            for owner in self.classes_of(node.value):
                yield ("self", self.root_class(owner), node.attr)

    def _of_call(self, call: ast.Call, todo: list[ast.AST]) -> Iterator[Source]:
        kind, last = self._kind_of.get(call, ""), self.script.last_names[call]
        if kind:
            yield call
        if (kind in ("ddp", "fsdp") or last in WRAPPERS) and call.args:
            todo += call.args if last == "zip" else call.args[:1]
        elif last in METHODS and isinstance(call.func, ast.Attribute):
            todo.append(call.func.value)
        elif last == "prepare":
            todo += call.args
        functions = self._resolved.iterators(call) if kind == "instance" else self._resolved.by_name(call)
        for function in functions:
            yield ("return", function)
