"""Find calls that write, make or remove what other ranks may write, too: of known libraries, and helpers by name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from distdbg.lint.rule import Context
from distdbg.lint.script.collectives import collective
from distdbg.lint.script.origins import with_values
from distdbg.lint.script.script import argument, has_stars, names_in, receiver

Does = Literal["saves", "writes", "makes", "removes", "lets a helper save"]

#: by the full name of a function: what it does, place and name of its path
_FUNCTIONS: dict[str, tuple[Does, int, str]] = {
    "torch.save": ("saves", 1, "f"),
    "torch.jit.save": ("saves", 1, "f"),
    "safetensors.torch.save_file": ("saves", 1, "filename"),
    "safetensors.torch.save_model": ("saves", 1, "filename"),
    "numpy.save": ("writes", 0, "file"),
    "numpy.savez": ("writes", 0, "file"),
    "numpy.savetxt": ("writes", 0, "fname"),
    "joblib.dump": ("writes", 1, "filename"),
    "torch.onnx.export": ("writes", 2, "f"),
    "shutil.copy": ("writes", 1, "dst"),
    "shutil.copyfile": ("writes", 1, "dst"),
    "shutil.copytree": ("writes", 1, "dst"),
    "shutil.move": ("writes", 1, "dst"),
    "os.rename": ("writes", 1, "dst"),
    "os.replace": ("writes", 1, "dst"),
}
#: by the name of a method
_METHODS: dict[str, tuple[Does, int, str]] = {
    "save_pretrained": ("saves", 0, "save_directory"),
    "to_csv": ("writes", 0, "path_or_buf"),
    "to_json": ("writes", 0, "path_or_buf"),
    "to_parquet": ("writes", 0, "path"),
    "to_pickle": ("writes", 0, "path"),
    "save_to_disk": ("writes", 0, "dataset_path"),
}
#: functions of a project, by their names: `save_checkpoint`
_HELPER = re.compile(
    r"^_?(?:save|store|write|dump)_?(?:the_?)?(?:\w*_)?(?:checkpoints?|ckpt|models?|state|weights|snapshot|networks?)$",
    re.IGNORECASE,
)
_LAST_NAMES = {*(name.rpartition(".")[2] for name in _FUNCTIONS), *_METHODS} | {
    "open", "makedirs", "mkdir", "remove", "unlink", "rmtree",
}  # fmt: skip
#: words of which a text that writes has at least one
WRITE_WORDS = re.compile(rf"^(?:{'|'.join(sorted(_LAST_NAMES))})\($|{_HELPER.pattern[:-1]}\($", re.IGNORECASE)
_CHECKPOINT = re.compile(r"ckpt|checkpoint|snapshot|\.pth?\b|best_|model_path|weights", re.IGNORECASE)
#: a helper of these keeps to one rank itself, or all ranks must call it
_COMMON = re.compile(r"accelerat|engine|fabric|trainer|strategy|deepspeed|master|rank|shard|dcp|dist", re.IGNORECASE)
_EXISTS = frozenset(("exists", "isfile", "isdir", "is_file", "is_dir", "lexists"))
_OF_A_PROCESS = re.compile(r"devnull|buffer|bytesio|stringio|tmp|temp|uuid|random|getpid|hostname", re.IGNORECASE)


@dataclass(frozen=True)
class Write:
    """`path` is None if only the function that is called knows it."""

    call: ast.Call
    does: Does
    path: ast.expr | None


def writes(context: Context) -> Iterator[Write]:
    """Everything that writes to a path, in the order of the source; no folder that may be there already."""
    for call in context.script.all(ast.Call):
        found = _write(context, call)
        if found is not None:
            yield found


def _write(context: Context, call: ast.Call) -> Write | None:
    name, last = context.script.call_names[call], context.script.last_names[call]
    known = _FUNCTIONS.get(name)
    if known is None and isinstance(call.func, ast.Attribute) and not context.values.callees(call):
        known = _METHODS.get(last)
    if known is not None:
        asks_itself = argument(call, -1, "is_main_process") is not None or has_stars(call)
        return None if asks_itself else _to(call, known[0], argument(call, *known[1:]))
    if last == "open":
        return _to(call, "writes", _opened(call, name))
    if last in ("makedirs", "mkdir"):
        return _to(call, "makes", _folder(context, call, name))
    if last in ("remove", "unlink", "rmtree"):
        return _to(call, "removes", _removed(context, call, name))
    return Write(call, "lets a helper save", None) if _is_helper(context, call, name, last) else None


def _to(call: ast.Call, does: Does, path: ast.expr | None) -> Write | None:
    return Write(call, does, path) if path is not None else None


def _opened(call: ast.Call, name: str) -> ast.expr | None:
    """The path of `open(path, "w")` and of `path.open("a")`."""
    of_a_path = name != "open" and not call.args[1:]
    mode = argument(call, 0 if of_a_path else 1, "mode")
    given = mode.value if isinstance(mode, ast.Constant) and isinstance(mode.value, str) else ""
    if given[:1] not in ("w", "x", "a") or len(given) > 3:
        return None
    path = receiver(call) if of_a_path else next(iter(call.args), None)
    return None if isinstance(path, ast.Constant) else path


def _folder(context: Context, call: ast.Call, name: str) -> ast.expr | None:
    """The folder that the call makes; None if it may be there already, or if an error is caught."""
    if argument(call, 3 if name.endswith("mkdir") else 2, "exist_ok") is not None or has_stars(call):
        return None
    around = context.script.above(call)
    if any(isinstance(o, ast.Try) or (isinstance(o, ast.With) and "suppress" in names_in(o)) for o in around):
        return None
    if name in ("os.makedirs", "os.mkdir"):
        return next(iter(call.args), None)
    return receiver(call) if not name.startswith(("os.", "()", "torch.")) else None


def _removed(context: Context, call: ast.Call, name: str) -> ast.expr | None:
    """What is called a checkpoint, or what was seen to be there: another rank may have removed it meanwhile."""
    if not name.startswith(("os.", "shutil.")) and context.script.last_names[call] != "unlink":
        return None
    path = next(iter(call.args), None) or receiver(call)
    tests = (outer.test for outer in context.script.above(call) if isinstance(outer, ast.If))
    seen = any(not _EXISTS.isdisjoint(names_in(test)) for test in tests)
    return path if path is not None and (seen or _is_checkpoint(context, path)) else None


def _is_checkpoint(context: Context, path: ast.expr) -> bool:
    """By its own words, or by those of the values of its variables."""
    return any(_CHECKPOINT.search(word) for part in with_values(context, path) for word in names_in(part))


def _is_helper(context: Context, call: ast.Call, name: str, last: str) -> bool:
    """A function of another file, or a method of self: one that is seen is judged by what it does."""
    root: ast.expr = call.func
    while isinstance(root, ast.Attribute):
        root = root.value
    if not _HELPER.match(last) or _COMMON.search(name) or not isinstance(root, ast.Name):
        return False
    if root.id != "self" and root.id not in context.script.file_of(root).names:
        return False
    if context.values.callees(call) or context.ranks.mentions(call) or collective(context, call):
        return False
    return not (last == "save_checkpoint" and "deepspeed" in context.frameworks)


def for_this_rank(context: Context, path: ast.expr) -> bool:
    """Is the rank, or a buffer, part of the path: directly or through variables?"""
    parts = with_values(context, path)
    return any(context.ranks.mentions(part) or any(map(_OF_A_PROCESS.search, names_in(part))) for part in parts)


def may_save(context: Context, call: ast.Call) -> bool:
    """`if args.should_save:` of transformers' TrainingArguments, which is true on one rank."""
    tests = (outer.test for outer in context.script.above(call) if isinstance(outer, ast.If))
    return any("should_save" in names_in(test) for test in tests)
