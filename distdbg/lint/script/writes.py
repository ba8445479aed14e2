"""Find calls that write, move or remove what other ranks may write, too."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from distdbg.lint.rule import Context
from distdbg.lint.script.collectives import collective
from distdbg.lint.script.script import argument, has_stars, is_constant, last_word, names_in, receiver
from distdbg.lint.script.writers import BY_FULL_NAME, LOGS, MAKES, METHODS_THAT_WRITE, PICTURES, REMOVES, Does, helps

_CHECKPOINT = re.compile(r"ckpt|checkpoint|snapshot|\.pth?\b|best_|model_path|weights", re.IGNORECASE)
_PATH = re.compile(
    r"(?:^|_)(?:path|paths|dir|directory|file|filename|folder|fname|fp|fn|outfile|output|dump)$", re.IGNORECASE
)
#: a text that is the end of a path
_ENDING = re.compile(
    r"\.(?:jsonl?|[ct]sv|txt|log|ya?ml|pkl|pickle|np[yz]|h5|hdf5|pth?|ckpt|bin|png|jpe?g|wav|mp4|onnx)$"
)
_PICTURE = re.compile(r"\.(?:png|jpe?g|gif|webp|pdf)$", re.IGNORECASE)
#: they keep it to one rank themselves, or all ranks must come to them
_COMMON = re.compile(
    r"accelerat|engine|fabric|trainer|strategy|deepspeed|booster|^torch\.|master|rank|sharded|state_dict$|dcp|dist",
    re.IGNORECASE,
)
#: objects that keep checkpoints
_KEEPER = re.compile(
    r"^_?(?:model_?)?(?:checkpoint|ckpt)(?:er|or|_?(?:handler|saver|keeper|io))$|^_?(?:model_?)?saver$", re.IGNORECASE
)
#: they ask whether a file is there
_EXISTS = frozenset(("exists", "isfile", "isdir", "is_file", "is_dir", "lexists", "islink"))
_OF_A_PROCESS = frozenset(("BytesIO", "mkdtemp", "uuid4", "uuid1", "getpid", "gethostname", "token_hex"))
_BUFFER = re.compile(r"devnull|buffer|bytesio|stringio|tmp|temp|uuid|random|getpid|hostname|gethostname", re.IGNORECASE)


@dataclass(frozen=True)
class Write:
    """`path` is None where only what is called knows it. `everyday`: scripts of one process do it as often."""

    call: ast.Call
    does: Does
    path: ast.expr | None
    everyday: bool = False


def writes(context: Context) -> Iterator[Write]:
    """Everything that writes to a path, in the order of the source; no folder that may be there already."""
    for call in context.script.all(ast.Call):
        found = _write(context, call)
        if found is not None:
            yield found


def _write(context: Context, call: ast.Call) -> Write | None:  # noqa: PLR0911 -- one line a kind
    name, last = context.script.call_names[call], context.script.last_names[call]
    if name.endswith(".save_pretrained") and isinstance(call.func, ast.Attribute):
        if argument(call, -1, "is_main_process") is not None or has_stars(call):
            return None  # it asks for the rank itself
        name = "save_pretrained"
    for does, table in BY_FULL_NAME:
        if name in table:
            everyday = table is PICTURES or does == "downloads"
            return _to(call, does, argument(call, *table[name]), everyday=everyday)
    if last in METHODS_THAT_WRITE and isinstance(call.func, ast.Attribute) and not context.values.callees(call):
        place = METHODS_THAT_WRITE[last]
        return _to(call, "writes", argument(call, *place) if place[0] >= 0 else call.func.value)
    if last in LOGS:
        return Write(call, "logs to", argument(call, *LOGS[last]))
    if last in _BY_LAST_NAME:
        return _BY_LAST_NAME[last](context, call, name)
    if is_constant(argument(call, -1, "download"), value=True) and name.startswith(("torchvision.", "torchaudio.")):
        return _to(call, "downloads", argument(call, 0, "root"), everyday=True)
    return _of_a_helper(context, call, name, last)


def _of_a_helper(context: Context, call: ast.Call, name: str, last: str) -> Write | None:
    saves, removes, by_path = helps(last)
    helper = (saves or removes) and (not by_path or bool(paths_of(call)))
    if not helper or _COMMON.search(name) or not _of_a_module(context, call.func):
        return None
    if _asks_itself(context, call) or collective(context, call):
        return None
    if last == "save_checkpoint" and "deepspeed" in context.frameworks:
        return None  # an engine's, to which all ranks come
    return Write(call, "lets a helper save" if saves else "lets a helper remove", None)


def _saved(context: Context, call: ast.Call, name: str) -> Write | None:
    """`checkpoint_handler.save(…)`, `words.save(path)` of an object of elsewhere that was told nothing of ranks."""
    if name.endswith(".save") and _scripted(context, call):
        return _to(call, "saves", argument(call, 0, "f"))
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    if owner is None or _COMMON.search(context.script.source(owner)) or _asks_itself(context, call):
        return None
    if any(map(context.ranks.mentions, (v for v in context.values.bound(owner) if isinstance(v, ast.Call)))):
        return None
    if _KEEPER.search(last_word(owner)):
        return Write(call, "lets a helper save", None)
    path = call.args[0] if len(call.args) == 1 and _is_a_path(call.args[0]) else None
    if path is not None and any(map(_PICTURE.search, names_in(path))):
        return None  # most often of a demonstration
    return _to(call, "writes", path, everyday=True)


def paths_of(call: ast.Call) -> list[ast.expr]:
    """The arguments that look like paths."""
    return [given for given in (*call.args, *(k.value for k in call.keywords)) if _is_a_path(given)]


def _is_a_path(given: ast.expr) -> bool:
    """By a word of it that says so, or as a text with an ending."""
    words = names_in(given)
    if any(map(_ENDING.search, words)):
        return True
    return not isinstance(given, ast.Constant) and any(map(_PATH.search, words))


def _of_a_checkpoint(context: Context, path: ast.expr) -> bool:
    """By its own words, or by those of what it was made of, a loop's included."""
    script, words = context.script, names_in(path)
    for _ in range(3):
        if any(map(_CHECKPOINT.search, words)):
            return True
        function = script.function_of(path)
        inside = script.within(function, ast.Assign, ast.For) if function is not None else []
        targets = [(t, n.value) for n in inside if isinstance(n, ast.Assign) for t in n.targets]
        targets += [(n.target, n.iter) for n in inside if isinstance(n, ast.For)]
        words = words.union(*(names_in(value) for target, value in targets if last_word(target) in words))
    return False


def _to(call: ast.Call, does: Does, path: ast.expr | None, *, everyday: bool = False) -> Write | None:
    return Write(call, does, path, everyday) if path is not None else None


def _opened(_context: Context, call: ast.Call, name: str) -> Write | None:
    """`open(path, "w")`, `path.open("a")`: the file is emptied, or gets the lines of all ranks."""
    of_a_path = name != "open" and not call.args[1:]  # else `manager.open(path, "w")`
    mode = argument(call, 0 if of_a_path else 1, "mode")
    path = (
        call.func.value if of_a_path and isinstance(call.func, ast.Attribute) else call.args[0] if call.args else None
    )
    given = (
        mode.value if isinstance(mode, ast.Constant) and isinstance(mode.value, str) and len(mode.value) <= 3 else ""
    )
    if given[:1] not in ("w", "x", "a") or isinstance(path, ast.Constant):
        return None
    return _to(call, "appends to" if given[:1] == "a" else "writes", path)


def _container(_context: Context, call: ast.Call, name: str) -> Write | None:
    """`h5py.File(path, "w")`: the file is emptied."""
    mode = argument(call, 1, "mode")
    if name != "h5py.File" or not isinstance(mode, ast.Constant) or mode.value not in ("w", "w-", "x"):
        return None
    return _to(call, "writes", argument(call, 0, "name"))


def _removed(context: Context, call: ast.Call, name: str) -> Write | None:
    """What is called a checkpoint, or what was seen to be there: another rank may have removed it meanwhile."""
    if not isinstance(call.func, ast.Attribute) and not name.startswith(("os.", "shutil.")):
        return None
    path = call.args[0] if call.args else receiver(call) if context.script.last_names[call] == "unlink" else None
    of_a_list = isinstance(path, ast.Constant) and not name.startswith("os.")
    if path is None or of_a_list:
        return None
    tests = [o.test for o in context.script.above(call) if isinstance(o, ast.If)]
    seen = any(not _EXISTS.isdisjoint(names_in(test)) for test in tests)
    checkpoint = _of_a_checkpoint(context, path)
    return _to(call, "removes", path if seen or checkpoint else None, everyday=not checkpoint)


def _moved(context: Context, call: ast.Call, _name: str) -> Write | None:
    """`path.rename(other)`: of a path, not of a table or a text."""
    last = context.script.last_names[call]
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    if owner is None or len(call.args) != 1 or (call.keywords and last != "symlink_to"):
        return None
    return _to(call, "moves", (owner if last == "symlink_to" else call.args[0]) if _is_a_path(owner) else None)


def _drawn(_context: Context, call: ast.Call, _name: str) -> Write | None:
    of_a_figure = isinstance(call.func, ast.Attribute)
    return _to(call, "writes", argument(call, 0, "fname") if of_a_figure else None, everyday=True)


def _unpacked(_context: Context, call: ast.Call, _name: str) -> Write | None:
    return _to(call, "downloads", argument(call, 0, "path"), everyday=True)


def _logged(_context: Context, call: ast.Call, name: str) -> Write | None:
    """`logging.basicConfig(filename=path)`, `logger.add(path)` of loguru."""
    if name == "loguru.logger.add":
        return _to(call, "logs to", call.args[0] if call.args and _is_a_path(call.args[0]) else None)
    return _to(call, "logs to", argument(call, -1, "filename") if name == "logging.basicConfig" else None)


def _scripted(context: Context, call: ast.Call) -> bool:
    """`scripted.save(path)` of what torch.jit made."""
    made = context.values.assignments(call.func.value) if isinstance(call.func, ast.Attribute) else []
    values = [a.value for a in made if isinstance(a.value, ast.Call)]
    return any(context.script.call_names[v] in ("torch.jit.script", "torch.jit.trace") for v in values)


def _folder(context: Context, call: ast.Call, name: str) -> Write | None:
    """A folder that each rank makes where it is not there yet."""
    if argument(call, 3 if name.endswith("mkdir") else 2, "exist_ok") is not None or has_stars(call):
        return None
    around = context.script.above(call)
    if any(isinstance(o, ast.Try) or (isinstance(o, ast.With) and "suppress" in names_in(o)) for o in around):
        return None
    if name in ("os.makedirs", "os.mkdir"):
        return _to(call, "makes", call.args[0] if call.args else None)
    if not isinstance(call.func, ast.Attribute) or name.startswith(("os.", "()", "torch.")):
        return None
    of_a_system = call.func.attr == "makedirs" and bool(call.args)  # `fs.makedirs(path)`, not `path.mkdir()`
    return _to(call, "makes", call.args[0] if of_a_system else call.func.value)


_BY_LAST_NAME: dict[str, Callable[[Context, ast.Call, str], Write | None]] = {
    "open": _opened,
    "File": _container,
    "save": _saved,
    "savefig": _drawn,
    "extractall": _unpacked,
    "basicConfig": _logged,
    "add": _logged,
    **dict.fromkeys(REMOVES, _removed),
    **dict.fromkeys(("rename", "replace", "symlink_to"), _moved),
    **dict.fromkeys(MAKES, _folder),
}


def _of_a_module(context: Context, function: ast.expr) -> bool:
    """A function, or a method of self; an object that saves may well know of ranks."""
    while isinstance(function, ast.Attribute):
        function = function.value
    return isinstance(function, ast.Name) and (
        function.id == "self" or function.id in context.script.file_of(function).names
    )


def _asks_itself(context: Context, call: ast.Call) -> bool:
    """A helper that is seen is judged by what it does; one that is given the rank keeps it to one rank, one hopes."""
    return bool(context.values.callees(call)) or context.ranks.mentions(call)


def for_this_rank(context: Context, path: ast.expr) -> bool:
    """Whether the rank, or a buffer, is part of the path: directly or through variables."""
    if context.ranks.mentions(path) or any(_BUFFER.search(w) for w in names_in(path)):
        return True
    for node in ast.walk(path):
        for value in context.values.bound(node) if isinstance(node, (ast.Name, ast.Attribute)) else ():
            if context.ranks.mentions(value) or any(w in _OF_A_PROCESS for w in names_in(value)):
                return True
    return False
