"""Run the script in its own `__main__`, as the interpreter does, beside the session of the rank.

All that holds under `python -u SCRIPT` holds here: sys.argv, sys.path[0], the attributes of `__main__` (it stays, for
atexit, late threads, pickling and multiprocessing), the text of the traceback, the exit status and the signal that ends
it. Nothing of ours raises into the script, and DISTDBG_WORKER=off switches it off.
"""

from __future__ import annotations

import os
import sys

from distdbg.worker import session

TYPE_CHECKING = False  # typing is not loaded for its own sake, here and in all of this folder
if TYPE_CHECKING:
    from types import CodeType, ModuleType, TracebackType
    from typing import Any

#: The interpreter has borrowed references to the hook and the traceback: neither may be freed while the hook runs.
_kept: list[object] = []
_OURS = (__file__, os.path.join(os.path.dirname(__file__), "boot.py"))


def run(given: dict[str, Any], arguments: list[str]) -> None:
    """`given` is what the interpreter put into `__main__` for boot.py; `arguments` begin with the script or -m."""
    main = _new_main(given)
    started = session.start()
    try:
        if arguments[0] == "-m":
            _run_module(arguments[1], arguments[2:])
        elif _is_application(arguments[0]):
            _run_application(arguments)
        else:
            _run_script(main, arguments, started)
    except BaseException as error:
        if started is not None:
            started.script_ended(error, _without_ours(error.__traceback__))
        _report_without_our_frames()
        raise
    if started is not None:
        started.script_ended()


def _new_main(given: dict[str, Any]) -> ModuleType:
    """A fresh `__main__` with the attributes that this version of Python gives one."""
    main = type(sys)("__main__")
    main.__dict__.update(given)
    main.__doc__ = None
    if "__annotations__" in given:
        main.__annotations__ = {}
    sys.modules["__main__"] = main
    return main


def _run_script(main: ModuleType, arguments: list[str], started: session.Session | None) -> None:
    script = arguments[0]
    path = os.path.abspath(script)
    sys.argv = arguments
    _set_orig_argv(arguments)
    if not getattr(sys.flags, "safe_path", False):
        sys.path.insert(0, os.path.dirname(os.path.realpath(script)))
    main.__file__ = path
    main.__loader__ = type(main.__loader__)("__main__", path)  # type: ignore[call-arg, misc]
    exec(_code(script, path, started), main.__dict__)


def _code(script: str, path: str, started: session.Session | None) -> CodeType:
    """Run a file that cannot be compiled in the interpreter itself, for its own error messages.

    For a missing file, a wrong encoding or a NUL byte these differ from those of compile(), and an old interpreter
    even runs the last. Byte code runs there as well, without us.
    """
    if script.endswith(".pyc"):
        _run_plain_interpreter()
    try:
        with open(script, "rb") as file:
            return compile(file.read(), path, "exec", dont_inherit=True)
    except SyntaxError as error:
        if started is not None:
            started.script_ended(error)
        _run_plain_interpreter()
        raise
    except (OSError, ValueError):
        _run_plain_interpreter()
        raise


def _run_plain_interpreter() -> None:
    """Become the plain interpreter of the same command line; returns only where that is not possible."""
    if sys.executable:
        os.execv(sys.executable, sys.orig_argv)


def _is_application(path: str) -> bool:
    """A folder or an archive with a `__main__`, found as the interpreter finds it: by the import hooks."""
    for hook in sys.path_hooks:
        try:
            hook(path)
        except ImportError:
            continue
        return True
    return False


def _run_application(arguments: list[str]) -> None:
    import runpy

    sys.argv = arguments
    _set_orig_argv(arguments)
    sys.path.insert(0, os.path.abspath(arguments[0]))
    runpy._run_module_as_main("__main__", alter_argv=False)  # type: ignore[attr-defined]


def _run_module(name: str, arguments: list[str]) -> None:
    import runpy

    sys.argv = ["-m", *arguments]
    _set_orig_argv(["-m", name, *arguments])
    if not getattr(sys.flags, "safe_path", False):
        sys.path.insert(0, os.getcwd())
    runpy._run_module_as_main(name)  # type: ignore[attr-defined]


def _set_orig_argv(arguments: list[str]) -> None:
    """Scripts that restart themselves read it: they must start the script again."""
    original = list(sys.orig_argv)
    for i, word in enumerate(original):
        if word.endswith("distdbg/worker/boot.py"):
            sys.orig_argv[i:] = arguments
            return


def _report_without_our_frames() -> None:
    """The interpreter reports the error itself, by the present hook, with the traceback of the script alone."""
    hook = sys.excepthook

    def report(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        sys.excepthook = hook
        _kept.append(traceback)
        error.__traceback__ = sys.last_traceback = _without_ours(traceback)
        hook(kind, error, error.__traceback__)

    _kept.append(report)
    sys.excepthook = report


def _without_ours(traceback: TracebackType | None) -> TracebackType | None:
    while traceback is not None and traceback.tb_frame.f_code.co_filename in _OURS:
        traceback = traceback.tb_next
    return traceback
