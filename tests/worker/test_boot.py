"""A script under boot.py behaves as under plain Python: the same bytes on both streams, the same end.

Each case is a folder of files and the words after `python -u`; it runs with and without boot.py and is compared. The
interpreters are this one and every other python3.10 to 3.14 on PATH: boot.py needs nothing installed there.
"""

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import textwrap
import zipfile
from pathlib import Path

import pytest

BOOT = Path(__file__).parents[2] / "distdbg" / "worker" / "boot.py"


def interpreters():
    found = {os.path.realpath(sys.executable): sys.executable}
    for minor in range(10, 15):
        path = shutil.which(f"python3.{minor}")
        real = path and subprocess.run(
            [path, "-c", "import sys; print(sys.executable)"], capture_output=True, text=True
        )
        if real and real.returncode == 0:
            found.setdefault(os.path.realpath(real.stdout.strip()), real.stdout.strip())
    return list(found.values())


CASES = {
    "attributes": """
        import sys, os
        m = sys.modules["__main__"]
        print(sys.argv, sys.path[0], os.getcwd(), __name__, __file__, m.__file__)
        print(sorted(n for n in globals() if n.startswith("__")), __spec__, __package__, __doc__)
        print(type(__loader__).__name__, __loader__.name, __loader__.path, __builtins__ is sys.modules["builtins"])
        print([a for a in sys.orig_argv[1:]])
        print(getattr(m, "__annotations__", None))
        x: int = 1
        print(getattr(m, "__annotations__", None) or __import__("inspect").get_annotations(m))
    """,
    "docstring": '''
        """A docstring."""
        from __future__ import annotations
        print(__doc__)
    ''',
    "main_at_exit": """
        import atexit, sys, threading, time
        value = 7
        def late():
            print("late", value, sys.modules["__main__"].value)
        atexit.register(late)
        threading.Thread(target=lambda: (time.sleep(0.2), late())).start()
    """,
    "pickle_at_exit": """
        import atexit, pickle
        class Thing:
            pass
        atexit.register(lambda: print(type(pickle.loads(pickle.dumps(Thing())))))
    """,
    "exception": "def f(x):\n    return 1 / x\n\nf(0)\n",
    "chained": """
        try:
            try:
                raise KeyError("a")
            except KeyError as e:
                raise ValueError("b") from e
        except ValueError:
            raise RuntimeError("c")
    """,
    "group": """
        import sys
        if sys.version_info >= (3, 11):
            raise ExceptionGroup("many", [ValueError(1), KeyError(2)])
        raise ValueError(1)
    """,
    "syntax_error": "x = 1\nif x\n    pass\n",
    "syntax_warning": 'print("\\d", 1 is 1)\n',
    "exit_number": "import sys\nsys.exit(7)\n",
    "exit_text": "import sys\nsys.exit('the end')\n",
    "exit_none": "import sys\nsys.exit()\n",
    "os_exit": "import os\nos._exit(9)\n",
    "interrupted": "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nimport time; time.sleep(5)\n",
    "interrupt_raised": "raise KeyboardInterrupt\n",
    "own_hook": """
        import sys, traceback
        sys.excepthook = lambda kind, value, tb: print("hook", kind.__name__, len(traceback.extract_tb(tb)))
        raise ValueError(3)
    """,
    "last_traceback": """
        import atexit, sys, traceback
        atexit.register(lambda: print([f.name for f in traceback.extract_tb(sys.last_traceback)], sys.last_value))
        def inner():
            raise ValueError(4)
        inner()
    """,
    "source": "import inspect\ndef f():\n    return 1\nprint(inspect.getsource(f), inspect.getfile(f))\n",
    "printed_traceback": "import traceback\ntry:\n    1 / 0\nexcept ZeroDivisionError:\n    traceback.print_exc()\n",
    "cookie": b"# -*- coding: latin-1 -*-\nprint(ascii('caf\xe9'))\n",
    "bom": b"\xef\xbb\xbfprint('with a mark')\n",
    "stdin": "import sys\nprint(sys.stdin.read())\n",
    "dispositions": """
        import signal
        print({s.name: str(signal.getsignal(s)) for s in signal.Signals})
    """,
    "threads": "import threading\nprint([t.name for t in threading.enumerate()], threading.active_count())\n",
    "shadowing": "import selectors\nprint(selectors.WHO)\n",
    "spawn": """
        import multiprocessing, os
        def work(n):
            return n * 2, __name__, os.path.basename(__file__)
        if __name__ == "__main__":
            for method in ("spawn", "fork", "forkserver"):
                with multiprocessing.get_context(method).Pool(1) as pool:
                    print(method, pool.map(work, [1, 2]))
    """,
    "fork": "import os\npid = os.fork()\nif pid: os.waitpid(pid, 0)\nprint('parent' if pid else 'child')\n",
    "interactive_names": "print(dir())\n",
    "not_utf8": b'x = "caf\xe9"\n',
    "nul_byte": b"x = 1\n\0y = 2\n",
    "unknown_encoding": "# coding: nosuch\nx = 1\n",
    "encodings_differ": b"\xef\xbb\xbf# coding: latin-1\nx = 1\n",
    "starts_itself_anew": """
        import os, sys
        print(sys.argv, flush=True)
        if "again" not in sys.argv:
            os.execv(sys.executable, [*sys.orig_argv, "again"])
    """,
    "asks_for_torch": """
        import importlib.util, sys
        spec = importlib.util.find_spec("torch")
        print(type(spec).__qualname__, type(spec.loader).__qualname__, "torch" in sys.modules)
        import torch
        print(type(torch.__spec__) is type(sys.__spec__), type(torch.__loader__), torch.seen)
        print(sorted(vars(torch.__spec__)))
    """,
    "torch_fails": """
        import sys, traceback
        sys.fail = True
        try:
            import torch
        except OSError:
            traceback.print_exc()
        del sys.fail
        import torch
        print(torch.seen)
        sys.fail = True
        del sys.modules["torch"]
        import torch
    """,
}

#: Stands beside a script whose case is about torch: a name that the worker side waits for.
A_TORCH = """\
import sys
seen = type(__spec__).__name__, type(__loader__).__name__, __spec__.loader is __loader__
def load():
    raise OSError("libcudart.so is missing")
if hasattr(sys, "fail"):
    load()
"""


def both(python, folder, *words, stdin=b""):
    """Without and with boot.py, whose agent takes the connection and never reads."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "DISTDBG", "COV"))}
    environment |= {"PYTHONDONTWRITEBYTECODE": "1", "RANK": "0", "NO_COLOR": "1"}
    results = []
    with tempfile.TemporaryDirectory(prefix="ddbg") as node_dir, socket.socket(socket.AF_UNIX) as agent:
        agent.bind(f"{node_dir}/agent.sock")
        agent.listen()
        environment["DISTDBG_NODE_DIR"] = node_dir
        for boot in ([], [str(BOOT)]):
            command = [python, "-u", *boot, *words]
            done = subprocess.run(command, cwd=folder, env=environment, input=stdin, capture_output=True, timeout=60)
            results.append((done.returncode, done.stdout, done.stderr))
        assert Path(node_dir, "00000.page").exists(), "the worker side was off"
    return results


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("python", interpreters(), ids=lambda p: Path(p).parents[1].name or p)
def test_a_script(python, case, tmp_path):
    source = CASES[case]
    (tmp_path / "selectors.py").write_text("WHO = 'the user'\n") if case == "shadowing" else None
    data = source if isinstance(source, bytes) else textwrap.dedent(source).lstrip("\n").encode()
    (tmp_path / "script.py").write_bytes(data)
    if "torch" in case:
        (tmp_path / "torch").mkdir()
        (tmp_path / "torch" / "__init__.py").write_text(A_TORCH)
    plain, ours = both(python, tmp_path, "script.py", "--a", "b c", stdin=b"typed")
    assert ours == plain


#: What docs/launch.md says that a script notices: frames of ours below its own, where it asks for its whole stack.
DEEPER = {
    "print_stack": "import sys, traceback\ntraceback.print_stack(file=sys.stdout)\n",
    "inspect_stack": "import inspect\nfor f in inspect.stack(): print(f.filename)\n",
    "faulthandler": "import faulthandler, sys\nfaulthandler.dump_traceback(sys.stdout)\n",
}


@pytest.mark.parametrize("case", DEEPER)
def test_frames_of_ours_are_seen_below_the_script_and_are_all_that_differs(case, tmp_path):
    (tmp_path / "script.py").write_text(DEEPER[case])
    plain, ours = both(sys.executable, tmp_path, "script.py")
    lines = ours[1].decode().splitlines()
    worker = str(BOOT.parent)
    frames = [i for i, line in enumerate(lines) if worker in line]
    assert len(frames) == 3
    under = {i + 1 for i in frames} if case == "print_stack" else set()  # their lines of source
    left = [line for i, line in enumerate(lines) if i not in {*frames, *under} and "^^" not in line]
    assert [re.sub("0x[0-9a-f]+", "", line) for line in left] == [
        re.sub("0x[0-9a-f]+", "", line) for line in plain[1].decode().splitlines()
    ]


@pytest.mark.parametrize("python", interpreters(), ids=lambda p: Path(p).parents[1].name or p)
def test_modules_folders_and_archives(python, tmp_path):
    package = tmp_path / "pack"
    package.mkdir()
    text = (
        "import sys\nfrom . import helper\nprint(__name__, __spec__.name, __package__, sys.argv, sys.path[0])\n1 / 0\n"
    )
    (package / "__init__.py").touch()
    (package / "helper.py").touch()
    (package / "train.py").write_text(text)
    (package / "__main__.py").write_text(text)
    folder = tmp_path / "application"
    folder.mkdir()
    (folder / "__main__.py").write_text("import sys, other\nprint(__name__, sys.argv, sys.path[0], __file__)\n")
    (folder / "other.py").touch()
    with zipfile.ZipFile(tmp_path / "application.zip", "w") as archive:
        for name in ("__main__.py", "other.py"):
            archive.write(folder / name, name)
    (tmp_path / "application.pex").write_bytes(
        b"#!/usr/bin/env python3\n" + (tmp_path / "application.zip").read_bytes()
    )
    (tmp_path / "byte_code.pyc").write_bytes(b"no byte code")
    (tmp_path / "empty").mkdir()
    for words in (
        ["-m", "pack.train", "x"],
        ["-m", "pack"],
        ["-m", "no_such_module"],
        ["-m", "pack.helper.deeper"],
        ["application", "x"],
        ["application.zip", "x"],
        ["application.pex", "x"],
        ["byte_code.pyc"],
        ["empty"],
        ["missing.py"],
    ):
        plain, ours = both(python, tmp_path, *words)
        assert ours == plain, words


def test_what_is_loaded_before_the_script_is_next_to_nothing(tmp_path):
    """Else a script that shadows one of these names would work under torchrun and not here."""
    (tmp_path / "script.py").write_text("import sys\nprint(' '.join(sorted(sys.modules)))\n")
    plain, ours = both(sys.executable, tmp_path, "script.py")
    added = set(ours[1].decode().split()) - set(plain[1].decode().split())
    assert {name for name in added if not name.startswith("distdbg")} <= {
        "__future__",  # by every file of ours; where distdbg is installed editable, plain Python has loaded it, too
        "_ctypes",
        "_json",
        "_socket",
        "_struct",
        "mmap",
    }
