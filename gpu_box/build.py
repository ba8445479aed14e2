"""Build the GPU box: the CUDA wheel of torch in a folder of its own, and beside it the libraries that replace NVIDIA's.

    python -m gpu_box.build                       for this Python and the newest torch in TESTED
    python -m gpu_box.build --torch 2.8.0         another version of torch, in another folder
    python -m gpu_box.build --tested              each version that distdbg's tests run with

The folder is no environment: a process that has it first in PYTHONPATH imports the CUDA build of torch in place of the
installed one, and finds all other packages where they were. Nothing that is installed changes. The folder is in
$XDG_CACHE_HOME/distdbg/gpu-box and made once for a version of torch and Python (a download of 0.5 GB; NVIDIA's own
packages, 2 GB more, are not installed). The libraries of each state of the sources have a folder of their own in it, so
that two checkouts can use the cache at the same time (half a minute to compile, 5 MB).
"""

from __future__ import annotations

import argparse
import compileall
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gpu_box.stubs import NVIDIA, Library, libraries_of
from gpu_box.tables import header

HERE = Path(__file__).parent

#: The versions that distdbg's tests run with, the newest first: it is the one that a box has by default.
TESTED = ("2.15.0", "2.13.0")
TORCH, OLDER_TORCH = TESTED
#: Libraries that the box models: a program may open them by name, also where torch does not link them.
MODELLED = ("libnvidia-ml.so.1", "libcuda.so.1")
#: The library with all that the box models, and the one that loads it with all other libraries of the box.
MODEL, FIRST = "libgpubox-model.so", "libgpubox.so"
#: Libraries that nobody has used for so long are removed when others are used.
_UNUSED_S = 7 * 86_400
_FLAGS = ("-std=c++17", "-O2", "-g", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-pthread")


class NotPossible(Exception):
    """The box cannot be built here; the message says what is missing."""


def cache() -> Path:
    """Where boxes are kept. Tests have another HOME: this is asked when the suite starts."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "distdbg" / "gpu-box"


def build(torch: str = TORCH, *, folder: Path | None = None) -> Path:
    """The folder of the libraries, inside that of their torch: both belong in PYTHONPATH, it in LD_LIBRARY_PATH.

    Raises `NotPossible` without a compiler, or where torch cannot be downloaded.
    """
    for tool in ("g++", "gcc", "nm", "readelf"):
        if shutil.which(tool) is None:
            raise NotPossible(f"{tool} is missing: install a C++ compiler and binutils")
    root = _root(torch, folder)
    box = root / f"box-{_fingerprint()}"
    root.mkdir(parents=True, exist_ok=True)
    with (root / ".lock").open("w") as lock:  # several test processes ask at once
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (root / ".torch-complete").exists():
            try:
                _install(torch, root)
            except NotPossible:
                shutil.rmtree(root)
                raise
        if not (box / ".complete").exists():
            shutil.rmtree(box, ignore_errors=True)
            version, torch_lib = _cuda_version(root), root / "torch" / "lib"
            shims = _compile_shims(torch_lib, compile_box(box, version), version)
            _link_first(torch_lib, box, shims)
            _register_shadow(box)
            (box / ".complete").touch()
        os.utime(box)
        for other in root.glob("box-*"):
            if other != box and other.stat().st_mtime < time.time() - _UNUSED_S:
                shutil.rmtree(other)
    return box


def is_built(torch: str) -> bool:
    """Whether torch need not be downloaded."""
    return (_root(torch, None) / ".torch-complete").exists()


def _root(torch: str, folder: Path | None) -> Path:
    return (folder or cache()) / f"torch-{torch}-cp{sys.version_info[0]}{sys.version_info[1]}"


def _install(torch: str, root: Path) -> None:
    """The wheel alone. `===` refuses a local version: an index of CPU builds would offer 2.13.0+cpu as newer."""
    command = [sys.executable, "-I", "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(root)]
    environment = os.environ | {"PIP_CONSTRAINT": os.devnull}  # a constraint is about an environment, which this is not
    wanted = [*command, "--upgrade", f"torch==={torch}"]
    done = subprocess.run(wanted, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise NotPossible(f"torch {torch} with CUDA cannot be installed: {done.stderr.strip().splitlines()[-1]}")
    compileall.compile_dir(root, quiet=2, workers=0)  # also where the user's own Python writes no bytecode
    if not (root / "torch" / "lib" / "libtorch_cuda.so").exists():
        raise NotPossible(f"torch {torch} as pip found it is no CUDA build")
    (root / ".torch-complete").touch()


#: What a process with simulated devices imports with torch.
BESIDE_TORCH = ("gpu_box_shadow.py", "gpu_box_no_values.py", "gpu_box_ranks.py")


def _register_shadow(box: Path) -> None:
    """torch loads what is registered as a backend when it is imported: gpu_box_shadow.py asks whether it is wanted."""
    for name in BESIDE_TORCH:
        shutil.copy(HERE / name, box)
    package = box / "gpu_box_shadow-1.dist-info"
    package.mkdir(exist_ok=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: gpu-box-shadow\nVersion: 1\n")
    (package / "entry_points.txt").write_text("[torch.backends]\ngpu_box_shadow = gpu_box_shadow:autoload\n")


def _fingerprint() -> str:
    digest = hashlib.sha256(repr(_FLAGS).encode())
    built_by = [HERE / name for name in ("build.py", "stubs.py", "tables.py", *BESIDE_TORCH)]
    for path in sorted([*HERE.glob("native/*"), *built_by]):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _cuda_version(root: Path) -> int:
    """As CUDA writes it: 13000 for 13.0."""
    needed = re.search(r"\[libcudart\.so\.(\d+)\]", _run("readelf", "-dW", root / "torch" / "lib" / "libc10_cuda.so"))
    assert needed, "libc10_cuda.so needs no libcudart"
    return {"11": 11080, "12": 12080}.get(needed[1], int(needed[1]) * 1000)


def compile_box(out: Path, cuda_version: int, *more: str) -> Path:
    """All that is modelled, as one library in `out`. `more`: flags of the compiler, for sanitizers."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "tables.h").write_text(header(cuda_version))
    flags = [*_FLAGS, f"-DBOX_CUDA_VERSION={cuda_version}", f"-I{out}", *more]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(lambda source: _object(source, out, flags), sorted(HERE.glob("native/*.cpp"))))
    whole = out / MODEL
    _run("g++", *more, "-shared", "-pthread", f"-Wl,-soname,{MODEL}", "-o", whole, *objects, "-ldl", "-lrt")
    for path in objects:
        path.unlink()
    return whole


def _compile_shims(torch_lib: Path, whole: Path, cuda_version: int) -> list[Path]:
    modelled = {line.split()[-1] for line in _run("nm", "--dynamic", "--defined-only", whole).splitlines()}
    needs = libraries_of(torch_lib, modelled)
    extra = [Library(soname) for soname in MODELLED if soname not in {library.soname for library in needs}]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(lambda library: _shim(library, whole.parent, cuda_version), [*needs, *extra]))


def _link_first(torch_lib: Path, box: Path, shims: Sequence[Path]) -> None:
    """Make the libraries of the box the first of their names that a process loads, before torch looks for others.

    torch loads libtorch_global_deps.so first, then NVIDIA's wheels that it finds on sys.path, and a Python of conda
    searches its own lib folder before LD_LIBRARY_PATH. The dynamic loader takes the first library of a name for all
    that ask for this name later. So libtorch_global_deps.so is replaced with one that needs libgpubox.so, a name that
    no other package has. libgpubox.so needs all libraries of the box, and searches its own folder first.
    """
    own_folder = ("-shared", "-Wl,--no-as-needed", "-Wl,--disable-new-dtags", "-Wl,-rpath,$ORIGIN")
    libraries = [f"-l:{path.name}" for path in (box / MODEL, *shims)]
    _run("gcc", *own_folder, f"-Wl,-soname,{FIRST}", "-o", box / FIRST, f"-L{box}", *libraries)
    dependencies = torch_lib / "libtorch_global_deps.so"
    needed = re.findall(r"\(NEEDED\).*\[(.+?)\]", _run("readelf", "-dW", dependencies))
    if FIRST in needed:
        return
    needed = [FIRST, *(name for name in needed if not NVIDIA.match(name))]
    replacement = torch_lib / f".{dependencies.name}"
    names = (f"-Wl,-soname,{dependencies.name}", f"-L{box}", f"-L{torch_lib}", *(f"-l:{name}" for name in needed))
    _run("gcc", *own_folder, "-o", replacement, *names)
    replacement.rename(dependencies)  # other boxes of this torch may be in use


def _object(source: Path, out: Path, flags: Sequence[str]) -> Path:
    path = out / f"{source.stem}.o"
    _run("g++", *flags, "-c", source, "-o", path)
    return path


def _shim(library: Library, out: Path, cuda_version: int) -> Path:
    """A library of the name that torch asks for: its stubs, and all that is modelled through MODEL.

    The name is a link: once a file called libcudart.so* is mapped, torch loads NVIDIA's wheels from sys.path, too.
    """
    path = out / library.soname.replace(".so", "-box.so", 1)
    source, script = out / f"{library.soname}.c", out / f"{library.soname}.map"
    source.write_text(library.source())
    script.write_text(f"{library.version} {{ global: *; }};\n")
    versions = [f"-Wl,--version-script={script}"] if library.version else []
    link = ["-Wl,--no-as-needed", f"-L{out}", f"-l:{MODEL}", "-Wl,-rpath,$ORIGIN"]
    name = f"-Wl,-soname,{library.soname}"
    flags = ("-std=gnu17", "-O1", "-w", "-fPIC", "-shared", f"-DVERSION={cuda_version}", name, *versions)
    _run("gcc", *flags, "-o", path, source, *link)
    (out / library.soname).symlink_to(path.name)
    source.unlink()
    script.unlink()
    return path


def _run(*command: str | Path) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotPossible(f"{' '.join(map(str, command))}\n{done.stderr.strip()}")
    return done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    versions = parser.add_mutually_exclusive_group()
    versions.add_argument("--torch", default=TORCH, metavar="VERSION")
    versions.add_argument("--tested", action="store_true", help=f"torch {' and '.join(TESTED)}")
    parser.add_argument("--folder", type=Path, help="in place of the cache")
    options = parser.parse_args()
    try:
        for version in TESTED if options.tested else (options.torch,):
            print(build(version, folder=options.folder))
    except NotPossible as error:
        print(f"the GPU box cannot be built: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
