"""Find calls that write, move or remove what other ranks may write, too."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from distdbg.lint.rule import Context
from distdbg.lint.script.collectives import collective
from distdbg.lint.script.script import argument, has_stars, last_word, names_in

Does = Literal["saves", "writes", "removes", "moves", "logs to", "makes", "lets a helper save", "lets a helper remove"]
_CHECKPOINT = re.compile(r"ckpt|checkpoint|snapshot|\.pth?\b|best_|model_path|weights", re.IGNORECASE)
#: of functions and methods that save: the place and the name of the path
_SAVES = {
    "torch.save": (1, "f"),
    "torch.jit.save": (1, "f"),
    "safetensors.torch.save_file": (1, "filename"),
    "safetensors.torch.save_model": (1, "filename"),
    "omegaconf.OmegaConf.save": (1, "f"),
    "save_pretrained": (0, "save_directory"),
}
#: what is most often no checkpoint, or no file that others read
_WRITES = {"numpy.save": (0, "file"), "numpy.savez": (0, "file"), "joblib.dump": (1, "filename"),
           "numpy.savetxt": (0, "fname")}  # fmt: skip
_METHODS_THAT_WRITE = {
    "to_csv": (0, "path_or_buf"), "to_parquet": (0, "path"), "to_pickle": (0, "path"), "to_feather": (0, "path"),
    "to_json": (0, "path_or_buf"), "save_to_disk": (0, "dataset_path"), "save_weights": (0, "filepath"),
    "write_text": (-1, ""), "write_bytes": (-1, ""),
}  # fmt: skip
_MOVES = {
    "shutil.copy": (1, "dst"), "shutil.copyfile": (1, "dst"), "shutil.copy2": (1, "dst"), "shutil.move": (1, "dst"),
    "shutil.copytree": (1, "dst"), "os.rename": (1, "dst"), "os.replace": (1, "dst"), "os.symlink": (1, "dst"),
}  # fmt: skip
_REMOVES = {"remove", "unlink", "rmtree"}
_LOGS = {
    "logging.FileHandler": (0, "filename"), "logging.basicConfig": (-1, "filename"),
    "torch.utils.tensorboard.SummaryWriter": (0, "log_dir"), "tensorboardX.SummaryWriter": (0, "logdir"),
}  # fmt: skip
_MAKES = {"makedirs", "mkdir"}
#: helpers by name
_HELPER = re.compile(
    r"^_?(?:save|store|write|dump)_?(?:the_?)?(?:\w*_)?(?:checkpoints?|ckpt|model|models|state|weights|snapshot|network|networks|"
    r"training_state|on_master)(?:_impl|_to_disk|_file)?$",
    re.IGNORECASE,
)
_REMOVER = re.compile(
    r"^_?(?:maybe_)?(?:clean|clear|remove|delete|prune|rotate|purge|rm)_?(?:up_)?(?:\w*_)?(?:checkpoints?|ckpts?|snapshots?|saves)$",
    re.IGNORECASE,
)
#: helpers whose name says that they write, where they are given a path: `copy_config_files(source, out_dir)`
_WRITER = re.compile(
    r"^_?(?:save|write|dump|export|store|record|copy)_(?!\w*(?:image|video|figure|plot|sample|audio|wav|log|summary|metric))\w+$"
)
_CLEANER = re.compile(r"^_?(?:maybe_)?(?:clean|prune|rotate|purge)(?:_?up)?(?:_old)?(?:_(?:dirs?|files?|folders?))?$")
_PATH = re.compile(r"(?:^|_)(?:path|paths|dir|directory|file|filename|folder|fname)$", re.IGNORECASE)
#: they keep it to one rank themselves, or all ranks must come to them
_COMMON = re.compile(
    r"accelerat|engine|fabric|trainer|strategy|deepspeed|booster|^torch\.|master|rank|sharded|state_dict$|dcp|dist",
    re.IGNORECASE,
)
#: objects that keep checkpoints
_KEEPER = re.compile(
    r"^_?(?:model_?)?(?:checkpoint|ckpt)(?:er|or|_?(?:handler|saver|keeper|io))$|^_?(?:model_?)?saver$", re.IGNORECASE
)
_BUFFER = re.compile(r"buffer|bytesio|stringio|tmp|temp", re.IGNORECASE)
_LAST = {name.rpartition(".")[2] for name in (*_SAVES, *_WRITES, *_MOVES, *_LOGS, *_METHODS_THAT_WRITE)}
#: words of which a text that writes has at least one
WRITE_WORDS = re.compile(
    rf"^(?:{'|'.join(sorted({*_LAST, *_REMOVES, *_MAKES, 'open', 'save'}))})\($|"
    rf"{_HELPER.pattern[:-1]}\($|{_REMOVER.pattern[:-1]}\($|{_WRITER.pattern[:-1]}\($|{_CLEANER.pattern[:-1]}\($",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Write:
    """`path` is None where only the helper that is called knows it."""

    call: ast.Call
    does: Does
    path: ast.expr | None


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
    for does, table in _TABLES:
        if name in table:
            return _to(call, does, argument(call, *table[name]))
    if last in _METHODS_THAT_WRITE and isinstance(call.func, ast.Attribute) and not context.values.callees(call):
        place = _METHODS_THAT_WRITE[last]
        return _to(call, "writes", argument(call, *place) if place[0] >= 0 else call.func.value)
    if last == "open":
        return _opened(call, name)
    if name.endswith(".save") and _scripted(context, call):
        return _to(call, "saves", argument(call, 0, "f"))
    if last in _REMOVES and isinstance(call.func, ast.Attribute):
        path = call.args[0] if call.args else call.func.value if last == "unlink" else None
        return _to(call, "removes", path if path is not None and _of_a_checkpoint(context, path) else None)
    if last in _MAKES:
        return _folder(context, call, name)
    if last == "save":
        return Write(call, "lets a helper save", None) if _is_a_keeper(context, call) else None
    return _of_a_helper(context, call, name, last)


def _of_a_helper(context: Context, call: ast.Call, name: str, last: str) -> Write | None:
    saves, removes, by_path = _helps(last)
    helper = (saves or removes) and (not by_path or _is_given_a_path(call))
    if not helper or _COMMON.search(name) or not _of_a_module(context, call.func):
        return None
    if _asks_itself(context, call) or collective(context, call):
        return None
    if last == "save_checkpoint" and "deepspeed" in context.frameworks:
        return None  # an engine's, to which all ranks come
    return Write(call, "lets a helper save" if saves else "lets a helper remove", None)


def _is_a_keeper(context: Context, call: ast.Call) -> bool:
    """`checkpoint_handler.save(…)` of an object of elsewhere that was told nothing of ranks."""
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    if owner is None or not _KEEPER.search(last_word(owner)) or _COMMON.search(context.script.source(owner)):
        return False
    made = [value for value in context.values.bound(owner) if isinstance(value, ast.Call)]
    return not _asks_itself(context, call) and not any(map(context.ranks.mentions, made))


@lru_cache(maxsize=10_000)
def _helps(last: str) -> tuple[bool, bool, bool]:
    """By its name: whether a helper saves, whether it removes, and whether only what is given a path does."""
    if _HELPER.match(last):
        return True, False, False
    if _REMOVER.match(last):
        return False, True, False
    if _WRITER.match(last):
        return True, False, True
    return False, _CLEANER.match(last) is not None, True


def _is_given_a_path(call: ast.Call) -> bool:
    given = (*call.args, *(k.value for k in call.keywords))
    return any(_PATH.search(w) for one in given if not isinstance(one, ast.Constant) for w in names_in(one))


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


_TABLES: tuple[tuple[Does, dict[str, tuple[int, str]]], ...] = (
    ("saves", _SAVES), ("writes", _WRITES), ("moves", _MOVES), ("logs to", _LOGS),
)  # fmt: skip


def _to(call: ast.Call, does: Does, path: ast.expr | None) -> Write | None:
    return Write(call, does, path) if path is not None else None


def _opened(call: ast.Call, name: str) -> Write | None:
    """`open(path, "w")`, `path.open("w")`: the file is emptied."""
    of_a_path = name != "open" and not call.args[1:]  # else `manager.open(path, "w")`
    mode = argument(call, 0 if of_a_path else 1, "mode")
    path = (
        call.func.value if of_a_path and isinstance(call.func, ast.Attribute) else call.args[0] if call.args else None
    )
    empties = isinstance(mode, ast.Constant) and str(mode.value)[:1] in ("w", "x") and len(str(mode.value)) <= 3
    return _to(call, "writes", None if isinstance(path, ast.Constant) else path) if empties else None


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
            if context.ranks.mentions(value) or any(w in ("BytesIO", "mkdtemp") for w in names_in(value)):
                return True
    return False
