"""Check the program before anything starts, so that a mistake is reported once and not by every rank."""

from __future__ import annotations

import os
import shutil
import warnings
import zipfile
from pathlib import Path

from distdbg.errors import UsageError
from distdbg.given_file import read_given

_PYTHON_MOST = 8 << 20  # bytes; a longer "script" is something else


def check_script(text: str, *, compiles: bool = True) -> None:
    """Raise UsageError where `python SCRIPT` could not even begin: missing, a bare folder, unreadable, not Python.

    `compiles` is False where another Python will run it."""
    path = Path(text)
    if path.is_symlink() and not path.exists():
        raise UsageError(
            f"the script {text!r} is a link to {str(path.readlink())!r}, which does not exist",
            "Name the script itself.",
        )
    if not path.exists():
        near = _nearest(path)
        raise UsageError(
            f"the script {text!r} does not exist",
            f"Did you mean {near!r}?" if near else f"It was looked for from {str(Path.cwd())!r}.",
        )
    if not os.access(path, os.R_OK | (os.X_OK if path.is_dir() else 0)):
        raise UsageError(f"the script {text!r} cannot be read", f"Give yourself the right: chmod u+rX {text!r}")
    if path.is_dir():
        if not (path / "__main__.py").exists():
            raise UsageError(f"{text!r} is a directory without a __main__.py", "Name the script in it.")
        return
    if not path.is_file():
        raise UsageError(f"the script {text!r} is no regular file", "Every rank reads it: name a file.")
    if compiles and not zipfile.is_zipfile(path):
        _check_source(text, path)


def _check_source(text: str, path: Path) -> None:
    if path.stat().st_size > _PYTHON_MOST:
        return
    try:
        source = read_given(path, _PYTHON_MOST)
    except OSError as error:
        raise UsageError(f"the script {text!r} cannot be read: {error.strerror}", "Nothing was started.") from None
    if b"\0" in source:
        raise UsageError(f"{text!r} is not a Python script: it is binary", "A program of any kind: --no-python.")
    first = source.split(b"\n", 1)[0]
    if first.startswith(b"#!") and b"python" not in first and b"env" not in first:
        hint = first[2:].strip().decode(errors="replace")
        message = f"{text!r} is not a Python script: its first line names {hint!r}"
        raise UsageError(message, "Start it with --no-python.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the ranks will say them
            compile(source, text, "exec", dont_inherit=True)
    except SyntaxError as error:
        line = (error.text or "").strip()
        where = f"{text}:{error.lineno}" if error.lineno else text
        what = "it is not text in its encoding" if error.msg.startswith("(unicode error)") else error.msg
        raise UsageError(f"{where}: {what}{f': {line}' if line else ''}", "Nothing was started.") from None
    except (ValueError, UnicodeDecodeError) as error:
        raise UsageError(f"{text!r} is not a Python script: {error}", "Nothing was started.") from None


def check_program(text: str) -> None:
    """Check an executable of --no-python, by path or on PATH."""
    if shutil.which(text) is None:
        raise UsageError(f"the program {text!r} is not an executable on PATH or in this folder", "Nothing was started.")


def _nearest(path: Path) -> str | None:
    import difflib

    try:
        names = [p.name for p in path.parent.iterdir() if p.suffix == ".py"]
    except OSError:
        return None
    found = difflib.get_close_matches(path.name, names, n=1)
    return str(path.parent / found[0]) if found else None


def check_torch() -> None:
    """Raise UsageError where this interpreter has no torch: torchrun is part of it."""
    import importlib.util
    import sys

    if importlib.util.find_spec("torch") is None:
        raise UsageError(
            f"torch is not installed for {sys.executable!r}, and torchrun is part of it",
            "Install PyTorch there, or run the distdbg of the environment that has it.",
        )
