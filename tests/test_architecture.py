"""The architecture: which package imports which, what is pure, how long a file may be, where knowledge is kept.

Everything is read from the source with ast, imports inside functions included: no module is loaded.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from distdbg.diagnosis.rules import all_rules
from distdbg.evidence.ops import OPERATIONS
from distdbg.launch.plan.environment import torch_facts

# One worker of pytest-xdist runs them all: each file is parsed once.
pytestmark = pytest.mark.xdist_group("source")

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "distdbg"
#: Packages; each imports only those after it.
PACKAGES = (
    "start cli launch worker rehearse collect shrink lint report diagnosis evidence findings protocol rundir settings "
    "job_file assets backend_names wording model errors given_file whole_file terminal "
    "hidden_values secret_digests secret_pieces secret_forms masking plain_text __init__"
).split()
PURE = set("lint report diagnosis evidence findings protocol wording model errors".split())
PURE |= {"hidden_values", "secret_digests", "secret_pieces", "secret_forms", "masking", "plain_text"}
IMPURE_MODULES = {"os", "time", "subprocess", "socket", "torch", "pynvml", "click", "psutil", "shutil", "threading"}
LONGEST = 400
#: the agent runs beside every job, under a torch that we did not choose: nothing but these may it need
AGENT_MAY_NEED = {"psutil", "distdbg"}
WORKER_MAY_NEED = {"torch", "distdbg"}
#: The simulated GPUs, a distribution of their own. `tables` is its module for a program that is started by its path.
GPU_BOX = ROOT / "gpu_box"
GPU_BOX_MAY_NEED = {"torch", "gpu_box", "tables"}

MODULES = sorted(p for p in PACKAGE.rglob("*.py"))
NAMES = [p.relative_to(ROOT).as_posix() for p in MODULES]


def dotted(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(parsed(path)))


@cache
def imports(path: Path) -> tuple[tuple[int, str], ...]:
    """(line, absolute module name) of each import; `from a import b` gives a.b where that is a module, else a."""
    return tuple(_imports(path))


def _imports(path: Path, *, typing: bool = False) -> Iterator[tuple[int, str]]:
    package = dotted(path) if path.name == "__init__.py" else dotted(path).rpartition(".")[0]
    only_typing = {
        id(inner)
        for node in nodes(path)
        if not typing and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    for node in nodes(path):
        if id(node) in only_typing:
            continue
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                yield node.lineno, inner if file_of(inner) else base


def file_of(module: str) -> Path | None:
    """The source of a module of ours, None for others'."""
    path = ROOT.joinpath(*module.split("."))
    for candidate in (path.with_suffix(".py"), path / "__init__.py"):
        if module.split(".", maxsplit=1)[0] == "distdbg" and candidate.is_file():
            return candidate
    return None


def package_of(module: str) -> str:
    """`distdbg.launch.agent.agent` -> launch; __init__ for distdbg itself."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def closure(*starts: str) -> set[Path]:
    """Modules of ours that importing these loads, as far as the source tells."""
    found: set[Path] = set()
    todo = [file_of(s) for s in starts]
    while todo:
        path = todo.pop()
        if path is None or path in found:
            continue
        found.add(path)
        todo += [file_of(name) for _, name in imports(path)]
    return found


def test_imports_point_down() -> None:
    wrong = []
    for path in MODULES:
        here = package_of(dotted(path))
        if here in ("__main__", "__init__"):
            continue  # the public names, of any package
        assert here in PACKAGES, f"{here} is not listed: add it to PACKAGES and to CONTRIBUTING.md"
        for line, name in imports(path):
            above = name.split(".")[0] == "distdbg" and package_of(name) != here
            if above and PACKAGES.index(package_of(name)) <= PACKAGES.index(here):
                wrong.append(
                    f"{path.relative_to(ROOT)}:{line} imports {name}: {here}/ may not import {package_of(name)}/"
                )
    assert not wrong


def test_the_worker_side_has_no_import_circles() -> None:
    """Imports inside functions and for types alone count, too: a circle of these is one of knowledge."""
    modules = {dotted(path): path for path in MODULES if package_of(dotted(path)) == "worker"}
    imported = {
        name: {inner for _, inner in _imports(path, typing=True) if inner in modules and inner != name}
        for name, path in modules.items()
    }
    while leaves := [name for name, inner in imported.items() if not inner]:
        imported = {name: inner - set(leaves) for name, inner in imported.items() if name not in leaves}
    assert not imported, f"a circle, and the modules that import it: {sorted(imported)}"


def circles(graph: dict[str, set[str]]) -> list[str]:
    """Nodes that lead back to themselves, in the order of their names."""
    reached: dict[str, set[str]] = {}
    for start, next_ones in graph.items():
        found: set[str] = set()
        todo = list(next_ones)
        while todo:
            name = todo.pop()
            if name not in found:
                found.add(name)
                todo += graph.get(name, ())
        reached[start] = found
    return sorted(name for name, found in reached.items() if name in found)


#: Packages whose sub-packages do not import one another in circles.
WITHOUT_CIRCLES = ("cli", "launch", "report", "findings", "protocol", "rundir", "settings")


def test_sub_packages_import_one_another_in_one_direction() -> None:
    for package in WITHOUT_CIRCLES:
        imported: dict[str, set[str]] = {}
        for path in MODULES:
            here = dotted(path).split(".")
            for _, name in imports(path) if here[1:2] == [package] and len(here) > 2 else ():
                there = name.split(".")
                if there[:2] == here[:2] and len(there) > 2 and there[2] != here[2]:
                    imported.setdefault(here[2], set()).add(there[2])
        assert not circles(imported), f"sub-packages of {package}/ import one another in a circle: {imported}"


def test_modules_import_one_another_in_one_direction() -> None:
    graph = {
        dotted(path): {dotted(found) for _, name in imports(path) if (found := file_of(name)) not in (None, path)}
        for path in MODULES
    }
    assert not circles(graph)


def test_pure_packages_touch_nothing() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}: it is pure"
        for path in MODULES
        if package_of(dotted(path)) in PURE
        for line, name in imports(path)
        if name.split(".")[0] in IMPURE_MODULES
    ]
    assert not wrong


def test_the_simulated_gpus_are_imported_by_rehearse_alone() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}: distdbg works without it, but for rehearse/"
        for path in MODULES
        for line, name in _imports(path, typing=True)
        if name.split(".")[0] == "gpu_box" and package_of(dotted(path)) != "rehearse"
    ]
    assert not wrong


def test_the_simulated_gpus_need_only_the_standard_library_and_torch() -> None:
    for path in sorted(GPU_BOX.glob("*.py")):
        for line, name in imports(path):
            root = name.split(".")[0]
            assert root in GPU_BOX_MAY_NEED or root in sys.stdlib_module_names, f"{path}:{line} imports {name}"


def test_programs_started_by_path_import_distdbg_after_setting_it() -> None:
    """Until then sys.path[0] is their own folder, from which distdbg cannot be imported if it is not installed."""
    for path in MODULES:
        lines = [
            node.lineno for node in nodes(path) if isinstance(node, ast.Subscript) and _sets_first_path_entry(node)
        ]
        early = [name for line, name in imports(path) if lines and line < min(lines) and name.startswith("distdbg")]
        assert not early, f"{path}: imports {early} before it sets sys.path[0]"


def _sets_first_path_entry(node: ast.Subscript) -> bool:
    return ast.unparse(node) == "sys.path[0]" and not isinstance(node.ctx, ast.Load)


def test_no_module_grows_without_end() -> None:
    code = [path for path in MODULES if package_of(dotted(path)) != "findings"]  # the catalogue is data
    code += [*GPU_BOX.glob("*.py"), *GPU_BOX.glob("native/*")]
    lines = {path.relative_to(ROOT): len(path.read_text(encoding="utf-8").splitlines()) for path in code}
    assert not {path: n for path, n in lines.items() if n > LONGEST}, "split it by what changes together"


def test_no_module_is_called_utils() -> None:
    assert not [n for n in NAMES if re.search(r"/(utils?|helpers?|common|misc)(/|\.py)", n)]


def test_the_agent_needs_only_the_standard_library_and_psutil() -> None:
    for path in closure("distdbg.launch.agent.agent"):
        for line, name in imports(path):
            root = name.split(".")[0]
            assert root in AGENT_MAY_NEED or root in sys.stdlib_module_names, f"{dotted(path)}:{line} imports {name}"


def test_the_worker_side_needs_only_the_standard_library_and_torch_when_it_is_there() -> None:
    for path in closure(*(dotted(m) for m in MODULES if package_of(dotted(m)) == "worker")):
        for line, name in imports(path):
            root = name.split(".")[0]
            assert root in WORKER_MAY_NEED or root in sys.stdlib_module_names, f"{dotted(path)}:{line} imports {name}"
        at_top = [n for n in parsed(path).body if isinstance(n, ast.Import | ast.ImportFrom)]
        assert not any("torch" in ast.unparse(n).split() for n in at_top), f"{dotted(path)} imports torch as it loads"


#: Who writes otherwise than by distdbg/whole_file.py, and why that is right.
WRITES_BY_ITSELF = {
    "distdbg/whole_file.py": "it is the writer",
    "distdbg/worker/guards/shared/atomic_saves.py": "renames the user's checkpoint, which torch.save wrote",
    "distdbg/worker/guards/checkpoints.py": "keeps the user's checkpoints; claims are node-local",
    "distdbg/shrink/checkpoint/staging.py": "renames a finished folder, not a file",
    "distdbg/cli/commands/runs.py": "renames a run that is about to be removed",
    "distdbg/launch/agent/node.py": "makes the node-local folder",
    "distdbg/launch/agent/follower.py": "holds the FIFOs that it reads open",
    "distdbg/launch/hang_dump.py": "copies a finished dump into a new or empty folder",
    "distdbg/shrink/checkpoint/pickled.py": "torch.save writes into the staging folder",
    "distdbg/launch/replay/guard_trial.py": "copies programs into a temporary folder of its own",
    "distdbg/worker/watch/dump.py": "torch.save writes to the temporary name of write_through",
    "distdbg/collect/machine/recorder.py": "writes to torch's FIFO, which asks a rank for its recorder",
}
_WRITING_METHODS = {"write_text", "write_bytes", "touch", "rename", "symlink_to", "hardlink_to"}
_WRITING_FUNCTIONS = {"os.replace", "os.rename", "os.symlink", "os.link", "os.mkfifo", "shutil.copy", "shutil.copy2",
                      "shutil.copyfile", "shutil.copytree", "shutil.move", "torch.save", "numpy.save",
                      "tempfile.NamedTemporaryFile", "tempfile.mkstemp"}  # fmt: skip
_MAY_WRITE = {*_WRITING_METHODS, *(name.rpartition(".")[2] for name in _WRITING_FUNCTIONS), "replace", "open"}
_WRITING_FLAGS = {"O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC", "O_APPEND"}


def _writes(call: ast.Call) -> bool:
    last = getattr(call.func, "attr", None) or getattr(call.func, "id", "")
    if last not in _MAY_WRITE:
        return False
    name = ast.unparse(call.func)
    if name in _WRITING_FUNCTIONS or (isinstance(call.func, ast.Attribute) and last in _WRITING_METHODS):
        return True
    if last == "replace" and len(call.args) == 1 and not call.keywords:  # of a Path: that of a str takes two
        return True
    given = [node.value for node in ast.walk(call) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    if name == "os.open":
        return any(flag in ast.unparse(call) for flag in _WRITING_FLAGS) and "devnull" not in ast.unparse(call)
    return last == "open" and any(re.fullmatch(r"[wax]b?\+?|[ra]b?\+b?", mode) for mode in given)


def test_files_are_written_by_one_module() -> None:
    wrong = [
        f"{name}:{node.lineno} {ast.unparse(node)[:80]}: use distdbg/whole_file.py"
        for path, name in zip(MODULES, NAMES, strict=True)
        if name not in WRITES_BY_ITSELF
        for node in nodes(path)
        if isinstance(node, ast.Call) and _writes(node)
    ]
    assert not wrong


BACKENDS = {"local", "ssh", "slurm"}
#: Files that compare with a backend's name, or use it as a key, and why that is no branch of a launch.
NAMES_A_BACKEND = {
    "distdbg/cli/commands/hang_dump.py": "--slurm-job is Slurm's own option",
    "distdbg/cli/commands/launch.py": "the key `slurm` of the settings",
    "distdbg/cli/commands/slurm_script.py": "it prints Slurm's batch script",
    "distdbg/job_file.py": "the key `slurm` of a job file",
    "distdbg/settings/settling.py": "the key `slurm` of the settings",
    "distdbg/assets.py": "the folder slurm/",
    "distdbg/evidence/host/preflight.py": "reads what older versions recorded in preflight.json",
}


def _decided_by(node: ast.AST) -> list[ast.expr]:
    """Expressions whose value decides what is done: operands, cases, keys, and the name that `named` looks up."""
    match node:
        case ast.Compare():
            return [node.left, *node.comparators]
        case ast.MatchValue():
            return [node.value]
        case ast.Dict():
            return [key for key in node.keys if key is not None]
        case ast.Subscript():
            return [node.slice]
        case ast.Call(func=ast.Name(id="named") | ast.Attribute(attr="named")):
            return node.args
    return []


def _in_a_backend(path: Path) -> bool:
    parts = path.relative_to(PACKAGE).parts
    return parts[:2] == ("launch", "backends") and parts[2] in BACKENDS


def test_no_branch_on_the_name_of_a_backend() -> None:
    found = {
        name: f"{name}:{node.lineno} {ast.unparse(node)[:80]}: ask the backend (launch/backends/interface.py)"
        for path, name in zip(MODULES, NAMES, strict=True)
        if not _in_a_backend(path)
        for node in nodes(path)
        for part in _decided_by(node)
        for word in ast.walk(part)
        if isinstance(word, ast.Constant) and word.value in BACKENDS
    }
    assert not [wrong for name, wrong in found.items() if name not in NAMES_A_BACKEND]
    assert not NAMES_A_BACKEND.keys() - found.keys(), "these name none any more: take them off the list"


def test_a_backend_is_imported_by_its_entry_point_alone() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in MODULES
        for line, name in imports(path)
        if name.startswith("distdbg.launch.backends.") and name.split(".")[3] in BACKENDS
        if not _in_a_backend(path) or dotted(path).split(".")[3] != name.split(".")[3]
    ]
    assert not wrong


def test_every_command_is_listed_in_the_readme() -> None:
    commands = {p.stem.replace("_", "-") for p in (PACKAGE / "cli" / "commands").glob("*.py") if p.stem != "__init__"}
    listed = set(re.findall(r"^\| `distdbg ([a-z-]+)", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE))
    assert listed == commands


def test_every_finding_is_documented_by_one_rule() -> None:
    ids = [doc.id for rule in all_rules() for doc in rule.docs]
    assert ids, "no rule was found"
    assert len(ids) == len(set(ids)), f"documented twice: {sorted(i for i in set(ids) if ids.count(i) > 1)}"
    for rule in all_rules():
        for doc in rule.docs:
            assert re.fullmatch(r"[a-z]+(-[a-z]+)*", doc.id), doc.id
            assert doc.title and doc.meaning and doc.how_seen and doc.remedy, f"{doc.id} is not documented in full"


def test_no_rule_gives_a_finding_that_it_does_not_document() -> None:
    known = {doc.id for rule in all_rules() for doc in rule.docs}
    for path in (PACKAGE / "diagnosis").rglob("*.py"):
        for node in nodes(path):
            if not (isinstance(node, ast.Call) and ast.unparse(node.func) == "Finding"):
                continue
            given = [k.value for k in node.keywords if k.arg == "id"] + node.args[:1]
            for value in given:
                if isinstance(value, ast.Constant):
                    assert value.value in known, (
                        f"{path.name}:{node.lineno} gives {value.value}, which has no FindingDoc"
                    )


#: Parts of files that only a classification of frames needs: see distdbg/evidence/frames.py.
_FRAME_PATHS = re.compile(
    r"site-packages|dist-packages|\b(?:threading|queue|selectors|subprocess|distributed_c10d)\\?\.py"
    r"|^(?:torch|accelerate|transformers|lightning|lightning_fabric|pytorch_lightning|deepspeed|megatron|ray)/\w+[/.]"
    r"|\(\?:\^\|/\)(?:torch|multiprocessing)/"
)
#: Who else has such a path, and why that classifies no frame.
NAMES_A_PATH = {
    "distdbg/evidence/frames.py": "it is the classification",
    "distdbg/collect/files/sources.py": "folders that lint does not search",
    "distdbg/evidence/logs/prefixes.py": "the source of a format, cited",
    "distdbg/worker/guards/data.py": "torch's functions whose variables a guard reads",
    "distdbg/worker/guards/ddp.py": "torch's function whose variables a guard reads",
    "distdbg/worker/watch/compiling.py": "a file in the text of torch's own log",
}


@cache
def texts(path: Path) -> tuple[ast.Constant, ...]:
    """String constants that are no docstrings."""
    docs = {
        id(node.body[0].value)
        for node in nodes(path)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and node.body
        if isinstance(node.body[0], ast.Expr)
    }
    return tuple(
        n for n in nodes(path) if isinstance(n, ast.Constant) and isinstance(n.value, str) and id(n) not in docs
    )


def test_frames_are_classified_in_one_place() -> None:
    found = {
        name: f"{name}:{text.lineno} {text.value[:60]!r}: use distdbg/evidence/frames.py"
        for path, name in zip(MODULES, NAMES, strict=True)
        for text in texts(path)
        if _FRAME_PATHS.search(str(text.value))
    }
    assert not [wrong for name, wrong in found.items() if name not in NAMES_A_PATH]
    assert not NAMES_A_PATH.keys() - found.keys(), "these name no path any more: take them off the list"


#: Fields and variables that hold sentences for people.
_SENTENCES = {"summary", "cause", "remedy", "phrase", "words", "what", "because", "why"}
_TAKES_APART = {"startswith", "endswith", "partition", "rpartition", "split", "rsplit", "find", "index", "removeprefix",
                "removesuffix", "count"}  # fmt: skip
#: Functions that change a sentence's grammar, or print it, and decide nothing.
CHANGES_A_SENTENCE = {
    ("distdbg/diagnosis/timeline/standing.py", "plural"): "the verb of several ranks",
    ("distdbg/diagnosis/slow/places.py", "alloc_in_loop"): "`aten::` of an operator's name",
}


def _is_sentence(node: ast.AST) -> bool:
    return getattr(node, "attr", getattr(node, "id", "")) in _SENTENCES


def _reads_a_sentence(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(attr=method, value=value)) if method in _TAKES_APART:
            return any(map(_is_sentence, ast.walk(value)))
        case ast.Call(func=ast.Attribute(attr="search" | "match" | "fullmatch" | "findall" | "finditer"), args=args):
            return any(map(_is_sentence, args))
        case ast.Compare(ops=[ast.In() | ast.NotIn()], left=ast.Constant(value=str()), comparators=[held]):
            return _is_sentence(held)
        case ast.Compare(ops=[ast.Eq() | ast.NotEq()], left=left, comparators=[ast.Constant(value=str())]):
            return _is_sentence(left)
    return False


def test_the_diagnosis_reads_no_sentence() -> None:
    """What a rule needs is a field: sentences are for people, and are worded anew at any time."""
    wrong = []
    for path, name in zip(MODULES, NAMES, strict=True):
        if package_of(dotted(path)) not in ("diagnosis", "report"):
            continue
        for function in (node for node in nodes(path) if isinstance(node, ast.FunctionDef)):
            if (name, function.name) not in CHANGES_A_SENTENCE:
                wrong += [
                    f"{name}:{node.lineno} {ast.unparse(node)[:80]}"
                    for node in ast.walk(function)
                    if _reads_a_sentence(node)
                ]
    assert not wrong


def test_operations_are_listed_in_one_place() -> None:
    """A set or a dict of operations' names is a second table: ask distdbg/evidence/ops.py for their kind."""
    known = {operation.name for operation in OPERATIONS}
    wrong = [
        f"{name}:{node.lineno} {sorted(listed & known)}"
        for path, name in zip(MODULES, NAMES, strict=True)
        if name not in ("distdbg/evidence/ops.py", "distdbg/lint/script/collectives.py")
        for node in nodes(path)
        if isinstance(node, ast.Set | ast.Tuple | ast.List | ast.Dict)
        for listed in [
            {
                inner.value
                for inner in (node.keys if isinstance(node, ast.Dict) else node.elts)
                if isinstance(inner, ast.Constant) and isinstance(inner.value, str)
            }
        ]
        if len(listed & known) > 1
    ]
    assert not wrong


#: Who opens a file to read by other means than open_regular, read_given and bounded_read, and why no FIFO is there.
READS_BY_ITSELF = {
    "distdbg/given_file.py": "it is one of the three",
    "distdbg/rundir/reading.py": "it is one of the three",
    "distdbg/cli/__init__.py": "distdbg's own source",
    "distdbg/cli/options.py": "after refuse_odd_target",
    "distdbg/cli/commands/rehearse.py": "in a temporary folder of its own",
    "distdbg/collect/files/child_limits.py": "/proc",
    "distdbg/collect/files/trace_files.py": "tokenize.open, after is_file",
    "distdbg/collect/runs/launcher_process.py": "/proc",
    "distdbg/evidence/logs/messages.py": "distdbg's own configs",
    "distdbg/report/page/renderer.py": "distdbg's own templates",
    "distdbg/launch/agent/death_dump.py": "node-local",
    "distdbg/launch/agent/follower.py": "/proc",
    "distdbg/launch/agent/timing.py": "node-local",
    "distdbg/launch/agent/rank_watch.py": "node-local",
    "distdbg/launch/agent/ranks.py": "node-local",
    "distdbg/launch/agent/straggler_stacks.py": "node-local",
    "distdbg/launch/backends/carriers.py": "a log that it has just opened by open_own",
    "distdbg/launch/hang_dump.py": "/proc",
    "distdbg/launch/io/folder_stream.py": "a dump that this process has just written",
    "distdbg/launch/live/on_finding.py": "a report that this process has just written",
    "distdbg/launch/plan/environment.py": "distdbg's own configs",
    "distdbg/launch/plan/torchrun_flags.py": "torch's source",
    "distdbg/launch/replay/guard_driver.py": "programs of the tests",
    "distdbg/launch/replay/guard_trial.py": "programs of the tests, and logs of its own",
    "distdbg/launch/watch/capture.py": "node-local",
    "distdbg/launch/watch/write_delay.py": "/proc, and events of its own agents",
    "distdbg/rehearse/launchers.py": "after is_file",
    "distdbg/shrink/checkpoint/staging.py": "after is_file",
    "distdbg/shrink/making.py": "the copy in its staging folder",
    "distdbg/shrink/verify/processing.py": "the copy in its staging folder",
    "distdbg/shrink/verify/reloading.py": "the copy in its staging folder",
}
_OTHER_OPEN = {"os.open", "tarfile.open", "source.open", "self.open", "self._follower.open", "Folder(folder).open"}


def _reads(call: ast.Call) -> bool:
    name = ast.unparse(call.func)
    last = name.rpartition(".")[2]
    return (last in ("read_text", "read_bytes") and "." in name) or (last == "open" and name not in _OTHER_OPEN)


def test_foreign_files_are_opened_by_functions_that_refuse_fifos() -> None:
    """collect/machine and collect/preflight read /proc and /sys, and the worker side its own process."""
    found = {
        name: f"{name}:{call.lineno} {ast.unparse(call)[:80]}: use distdbg.rundir.open_regular"
        for path, name in zip(MODULES, NAMES, strict=True)
        if not name.startswith(("distdbg/collect/machine/", "distdbg/collect/preflight/", "distdbg/worker/"))
        for call in nodes(path)
        if isinstance(call, ast.Call) and _reads(call) and not _writes(call)
    }
    assert not [wrong for name, wrong in found.items() if name not in READS_BY_ITSELF]
    assert not READS_BY_ITSELF.keys() - found.keys(), "these use the functions now: take them off the list"


#: Who parses JSON, TOML or a literal without a guard against deep nesting, and who wrote it.
PARSES_OWN_TEXT = {
    "distdbg/collect/files/recorder_child.py": "a path from recorder_files",
    "distdbg/collect/files/snapshot_files.py": "the answer of snapshot_child",
    "distdbg/collect/machine/pyspy.py": "py-spy",
    "distdbg/collect/preflight/probe.py": "the launcher, and its own child",
    "distdbg/launch/agent/agent.py": "the launcher",
    "distdbg/launch/agent/dumping.py": "the answer of capture",
    "distdbg/launch/agent/gpu_watch.py": "the answer of gpu_look",
    "distdbg/launch/agent/logs_specs.py": "the agent",
    "distdbg/launch/backends/slurm/node_dump.py": "the command line of dump",
    "distdbg/launch/backends/slurm/template.py": "its own process",
    "distdbg/launch/link/wire.py": "anybody: Wire.receive has the guard",
    "distdbg/launch/replay/apart.py": "its own process",
    "distdbg/launch/replay/guard_trial.py": "its own ranks",
    "distdbg/launch/watch/capture.py": "the request of the agent",
    "distdbg/rehearse/launchers.py": "its own process",
    "distdbg/shrink/asking.py": "the answer of its child",
    "distdbg/shrink/child.py": "the question of its parent",
    "distdbg/shrink/probe/building.py": "itself",
    "distdbg/worker/watch/compiling.py": "torch",
}


#: What the version of torch is called in a comparison, and calls that make a version of a text.
_TORCH_VERSION = re.compile(r"\btorch(\.version)?\.__version__|\btorch_version\b|\bTorchVersion\b|version\(.torch.\)")


def test_versions_of_torch_are_compared_in_one_module() -> None:
    """What differs between them is a fact of configs/torch-versions.yaml, with its source."""
    compared = [
        f"{path.relative_to(ROOT)}:{node.lineno} {ast.unparse(node)[:80]}"
        for path in (*MODULES, *sorted((ROOT / "tests").rglob("*.py")), *sorted((ROOT / "benchmarks").glob("*.py")))
        if path != PACKAGE / "launch" / "plan" / "environment.py"
        for node in ast.walk(parsed(path))
        if _compares_torch_version(node)
    ]
    assert not compared


def _compares_torch_version(node: ast.AST) -> bool:
    match node:
        case ast.Compare(ops=ops) if any(isinstance(op, (ast.Lt, ast.LtE, ast.Gt, ast.GtE)) for op in ops):
            return bool(_TORCH_VERSION.search(ast.unparse(node)))
        case ast.Call(func=ast.Attribute(attr="startswith", value=value)):
            return bool(_TORCH_VERSION.search(ast.unparse(value)))
    return False


def test_each_fact_about_torch_has_a_source_and_a_bound() -> None:
    for name, fact in torch_facts().items():
        assert fact["source"].startswith("https://") and fact.keys() & {"first", "last"}, name


def test_foreign_json_is_parsed_with_a_guard() -> None:
    """Deep nesting raises RecursionError. distdbg.evidence.jsonl.parse makes it a ValueError."""
    found = {
        name: f"{name}:{call.lineno} {ast.unparse(call)[:80]}: use distdbg.evidence.jsonl.parse"
        for path, name in zip(MODULES, NAMES, strict=True)
        for call in _unguarded_parsers(parsed(path))
    }
    assert not [wrong for name, wrong in found.items() if name not in PARSES_OWN_TEXT]
    assert not PARSES_OWN_TEXT.keys() - found.keys(), "these have a guard now: take them off the list"


def _unguarded_parsers(node: ast.AST) -> Iterator[ast.Call]:
    if isinstance(node, ast.Try):
        guards: list[ast.AST] = [handler.type for handler in node.handlers if handler.type is not None]
    else:
        guards = [item.context_expr for item in node.items] if isinstance(node, ast.With) else []
    if any(isinstance(name, ast.Name) and name.id in _CATCH_NESTING for guard in guards for name in ast.walk(guard)):
        return
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("json.loads", "json.load", "tomllib.loads"):
        yield node
    for inner in ast.iter_child_nodes(node):
        yield from _unguarded_parsers(inner)


_CATCH_NESTING = {"RecursionError", "Exception"}
