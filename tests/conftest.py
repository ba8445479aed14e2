"""What every test gets: a home of its own, an environment without a cluster's traces, and no process left behind.

Fixtures
    distdbg(*args)        the command line, as a subprocess in a folder of the test's own
    torchrun(*args)       plain torchrun, to compare with
    need(tool, package)   a system program that the test cannot do without
    bed, slurm_bed        hosts of their own on this machine (tests/cluster)
    gpu_box               simulated GPUs under the CUDA build of torch (tests/gpu/fixtures.py)

Under CI (the variable CI is set) a skip is a failure: what the suite needs, `make system-packages` installs.
Left out are reasons that begin with "not possible here", for what a kernel cannot do.
"""

from __future__ import annotations

import gc
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from distdbg.rundir import RUNS_FOLDER, RunDir, list_runs
from tests import fork_server
from tests.breadth import keep_sample
from tests.cluster.fixtures import bed, slurm_bed  # noqa: F401 -- fixtures
from tests.cpu_costs import CpuCosts
from tests.fork_server import AT_EXIT
from tests.gpu.fixtures import box_torch, gpu_box  # noqa: F401 -- fixtures

# Each worker of pytest-xdist, and each command that a test starts, would compile all that it imports.
sys.dont_write_bytecode = False
IN_CI = bool(os.environ.get("CI"))
#: Every process that a test starts, however indirectly, carries this with the test's own folder in it.
MARK = "DISTDBG_TEST_FOLDER"
#: A scheduler's, a launcher's or a tuner's traces would change what a test sees.
FOREIGN = ("SLURM_", "PET_", "TORCHELASTIC_", "NCCL_", "TORCH_", "GLOO_", "DISTDBG_", "GROUP_", "OMPI_", "PMI_")
FOREIGN += ("GPU_BOX_", "TORCHINDUCTOR_")
FOREIGN_NAMES = {"MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "ROLE_RANK"}
FOREIGN_NAMES |= {"OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "PYTHONUNBUFFERED", "PYTHONPATH", "XDG_RUNTIME_DIR"}
FOREIGN_NAMES |= {"PYTHONDONTWRITEBYTECODE"}
#: Of a file whose tests are all slow.
SLOW_FILE = re.compile(r"^pytestmark = .*\bpytest\.mark\.slow\b", re.MULTILINE)


@dataclass(frozen=True)
class Finished:
    """A command that has ended: exit code (negative for a signal), what it printed, and where it ran."""

    code: int
    out: str
    err: str
    cwd: Path

    @property
    def run(self) -> RunDir:
        """The newest run directory below the folder that the command ran in."""
        runs = list_runs(self.cwd / RUNS_FOLDER)
        assert runs, f"no run directory was made in {self.cwd}\n{self.out}\n{self.err}"
        return runs[-1]

    def __str__(self) -> str:
        return f"exit code {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


Command = Callable[..., Finished]


def run_command(
    command: list[str], cwd: Path, *, env: Mapping[str, str] | None = None, timeout: float = 120, stdin: bytes = b""
) -> Finished:
    """Run to the end; past `timeout` seconds it is interrupted as a person would, then killed, and the test fails."""
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        out, err = process.communicate(stdin, timeout=timeout)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        try:
            out, err = process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
        pytest.fail(f"{command} did not end within {timeout} s\n{os.fsdecode(out)}\n{os.fsdecode(err)}")
    return Finished(process.returncode, os.fsdecode(out), os.fsdecode(err), cwd)


@pytest.fixture
def distdbg(tmp_path: Path) -> Iterator[Command]:
    """`distdbg("launch", "train.py", env={…}, timeout=60)`: runs in the test's folder unless cwd= names another.

    Whatever it did, the runs that it left there are the user's alone.
    """

    commands = set()

    def call(*args: str | Path, cwd: Path | None = None, **options: object) -> Finished:
        commands.add(args[0])
        return run_command([sys.executable, "-m", "distdbg", *map(str, args)], cwd or tmp_path, **options)  # type: ignore[arg-type]

    yield call
    runs = list_runs(tmp_path / RUNS_FOLDER) if "launch" in commands else []
    assert not [name for run in runs for name in open_to_others(run.path)]


def open_to_others(folder: Path) -> Iterator[str]:
    """Files and folders of a run that its owner does not have for themselves."""
    for where, _, files in os.walk(folder):
        for path, wanted in ((where, 0o700), *((f"{where}/{name}", 0o600) for name in files)):
            status = os.lstat(path)
            if not stat.S_ISLNK(status.st_mode) and stat.S_IMODE(status.st_mode) != wanted:
                yield f"{path}: {stat.S_IMODE(status.st_mode):o}"


@pytest.fixture
def torchrun(tmp_path: Path) -> Command:
    """Plain torchrun with the same interpreter: the behaviour that unmodified scripts expect."""

    def call(*args: str | Path, cwd: Path | None = None, **options: object) -> Finished:
        command = [sys.executable, "-m", "torch.distributed.run", *map(str, args)]
        return run_command(command, cwd or tmp_path, **options)  # type: ignore[arg-type]

    return call


@pytest.fixture
def need() -> Callable[[str, str], str]:
    """`need("fsfreeze", "util-linux")` gives the program's path, or skips (fails under CI) naming its package."""

    def find(tool: str, package: str) -> str:
        path = shutil.which(tool) or shutil.which(tool, path="/usr/sbin:/sbin")
        if path is None:
            pytest.skip(f"{tool} is missing: install Debian's {package}, or run `make system-packages`")
        return path

    return find


def nodes_of(program: Path) -> int:
    """How many nodes with two ranks each a program of tests/programs runs on: 1 where its docstring has the line
    `On two ranks.`, else 2."""
    return 1 if "\nOn two ranks.\n" in program.read_text() else 2


def environment_in(folder: Path) -> dict[str, str]:
    """For what a fixture of a whole module starts: as `own_home` gives it to a test, with `folder` for its home."""
    own = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN) and k not in FOREIGN_NAMES}
    return own | {"HOME": str(folder), MARK: str(folder), "PYTHONPATH": str(AT_EXIT)}


@pytest.fixture(scope="session", autouse=True)
def own_environment() -> Iterator[None]:
    """No fixture or test sees the scheduler environment of whoever runs the tests, their settings of git, or which
    signals they ignore."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith(FOREIGN) or name in FOREIGN_NAMES:
                patch.delenv(name)
        patch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
        for who in ("AUTHOR", "COMMITTER"):
            patch.setenv(f"GIT_{who}_NAME", "Tester")
            patch.setenv(f"GIT_{who}_EMAIL", "tester@example.org")
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):  # ignored below nohup, and in the background
            if signal.getsignal(number) is signal.SIG_IGN:
                signal.signal(number, lambda *_: None)  # what a test starts has the default then
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setenv("PYTHONPATH", str(AT_EXIT))
        yield


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No test reads or writes the user's own settings or caches. Variables that it sets end with it: torch sets
    TORCHINDUCTOR_CACHE_DIR for the whole process, and later tests could not fork their jobs."""
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(home / name.lower()))
    monkeypatch.setenv(MARK, str(tmp_path))
    before = set(os.environ)
    yield
    for name in os.environ.keys() - before:
        del os.environ[name]


@pytest.fixture(autouse=True)
def no_orphans(tmp_path: Path, own_home: None) -> Iterator[None]:
    """When a test ends, nothing that it started still runs. What does is named, ended, and fails the test."""
    yield
    left = processes_of(tmp_path)
    deadline = time.monotonic() + 5
    while left and time.monotonic() < deadline:
        time.sleep(0.05)
        left = processes_of(tmp_path)
    if not left:
        return
    for pid in left:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    pytest.fail("left running: " + "; ".join(f"{pid}: {line}" for pid, line in left.items()))


def processes_of(folder: Path) -> dict[int, str]:
    """Living processes that this test, or a run in its folder, started: pid -> command line."""
    mine = os.fsencode(f"{MARK}={folder}") + b"\0", os.fsencode(f"DISTDBG_RUN_DIR={folder}/")
    found: dict[int, str] = {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environment = Path(entry.path, "environ").read_bytes()
            if not any(mark in environment for mark in mine):
                continue
            command = Path(entry.path, "cmdline").read_bytes()
        except OSError:
            continue  # it ended meanwhile, or is another user's
        if command:  # a zombie has none
            found[int(entry.name)] = command.replace(b"\0", b" ").decode(errors="replace").strip()
    return found


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Jobs are forked from a process that has imported torch, but for tests that are about processes (`started`)."""
    if item.get_closest_marker("slow"):
        fork_server.start({"PYTHONPATH": str(AT_EXIT)})
        fork_server.allow(forks=item.get_closest_marker("started") is None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="every case of the tests of breadth, not a sample of them")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    keep_sample(config, items)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(CpuCosts())


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """Modules, tests and their parameters live until the end: the garbage collector leaves them out from then on."""
    gc.disable()
    result = yield
    gc.enable()
    gc.freeze()
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    _no_skip_in_ci(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    report = yield
    _no_skip_in_ci(report)
    return report


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The fast part does not even import files that have none of it: torch alone takes seconds."""
    if config.option.markexpr != "not slow" or collection_path.suffix != ".py":
        return None
    return bool(SLOW_FILE.search(collection_path.read_text(encoding="utf-8"))) or None


def _no_skip_in_ci(report: pytest.TestReport | pytest.CollectReport) -> None:
    if not IN_CI or not report.skipped or hasattr(report, "wasxfail"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if reason.removeprefix("Skipped: ").startswith("not possible here"):
        return
    report.outcome = "failed"
    report.longrepr = f"a skip is a failure in CI: {reason}"
