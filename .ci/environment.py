"""Makes the virtual environment that `make demo` and `make test` use. Standard library only; safe to call again.

    python3 .ci/environment.py FOLDER [--torch 'torch==2.13.0'] [--extra test]

torch, in this order:
  1. the one that the calling interpreter can import (its environment is seen from within the new one);
  2. with an NVIDIA device: whatever pip finds for --torch;
  3. without one: the CPU build. pip is asked first what it *would* install, from the configured indexes, then from
     PyTorch's CPU index as well; an answer with CUDA packages in it is never carried out. If the newest version has
     no CPU build in either, the newest that has one is taken, and named.
Everything else is installed with that torch pinned, so that no dependency can replace it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

CPU_INDEX = "https://download.pytorch.org/whl/cpu"
#: names that only come with a CUDA build of torch
CUDA_PACKAGES = ("nvidia-", "cuda-", "triton", "pytorch-triton")
NVIDIA_DEVICES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/proc/driver/nvidia/version")
HAS_TORCH = "import torch, torch.distributed"


def main() -> None:
    parser = argparse.ArgumentParser(description="Make or complete the virtual environment.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--torch", default="torch>=2.8", help="as pip takes it; a wheel's path or address too")
    parser.add_argument("--extra", default="", help="extras of pyproject.toml, comma-separated")
    options = parser.parse_args()
    python = make_folder(options.folder)
    if not succeeds(python, "-c", HAS_TORCH):
        install_torch(python, options.torch)
    constraint = options.folder / "torch-constraint.txt"
    constraint.write_text(f"torch=={output(python, '-c', VERSION).strip()}\n")
    project = f".[{options.extra}]" if options.extra else "."
    projects = ("--editable", project, "--editable", "./gpu_box")
    # numpy: torch warns at each start without it
    pip(python, "install", "--quiet", "--constraint", str(constraint), *projects, "numpy")


#: the version as pip knows it: torch.__version__ can be spelt otherwise
VERSION = "import importlib.metadata as m; print(m.version('torch'))"


def make_folder(folder: Path) -> str:
    """The interpreter of a working environment in `folder`; a broken one (another Python since) is made anew."""
    if sys.version_info < (3, 10):  # noqa: UP036 - whoever calls this may have an older one
        stop(f"Python {sys.version.split()[0]} is too old: 3.10 is needed. Name another: make … PYTHON=python3.12")
    python = folder / "bin" / "python"
    if succeeds(str(python), "-m", "pip", "--version"):
        return str(python)
    if folder.exists() and any(folder.iterdir()) and not (folder / "pyvenv.cfg").exists():
        stop(f"{folder} exists and is no virtual environment. Name another folder: make … VENV=…")
    inherit = succeeds(sys.executable, "-c", HAS_TORCH)
    print(f"making {folder} with {sys.executable}" + (", which has torch" if inherit else ""), flush=True)
    command = [sys.executable, "-m", "venv", "--clear", *(["--system-site-packages"] if inherit else []), str(folder)]
    if subprocess.run(command, check=False).returncode:
        stop("the virtual environment could not be made. On Debian and Ubuntu: apt-get install python3-venv")
    if inherit and not succeeds(str(python), "-c", HAS_TORCH):
        see_parent(str(python))
    pip(str(python), "install", "--quiet", "--upgrade", "pip>=24.2")  # older ones cannot say what they would install
    return str(python)


def see_parent(python: str) -> None:
    """The caller is in a virtual environment itself, which --system-site-packages skips: add its packages."""
    import sysconfig

    target = Path(output(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    folders = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    lines = [f"import site; site.addsitedir({folder!r})" for folder in sorted(folders)]
    (target / "zz_parent_environment.pth").write_text("\n".join(lines) + "\n")


def install_torch(python: str, wanted: str) -> None:
    device = next((name for name in NVIDIA_DEVICES if Path(name).exists()), None)
    if device:
        print(f"{device} is here: installing {wanted}", flush=True)
        pip(python, "install", "--quiet", wanted)
        return
    print(f"no torch and no NVIDIA device: looking for a CPU build of {wanted}", flush=True)
    answers, newest = [], ""
    for index in ([], ["--extra-index-url", CPU_INDEX, "--timeout", "15", "--retries", "1"]):
        packages, why = would_install(python, [wanted, *index])
        cuda = cuda_packages(packages)
        if packages and not cuda:
            pip(python, "install", "--quiet", wanted, *index)
            return
        if cuda:
            newest = packages.get("torch", newest)
            why = f"only a build with {len(cuda)} CUDA packages: {', '.join(cuda[:3])}, …"
        where = f"with {CPU_INDEX} (where it answers)" if index else "the configured package index"
        answers.append(f"  {where}: {why}")
    if older := older_cpu_build(python, wanted, newest):
        print(f"torch {newest} has CUDA builds only here: installing {older}, the newest CPU build", flush=True)
        pip(python, "install", "--quiet", f"torch=={older}")
        return
    stop(
        f"no CPU build of {wanted} can be had, and several GB of CUDA packages serve nobody here:\n"
        + "\n".join(answers)
        + "\nInstall torch yourself and call make again, or name another build: make … TORCH='torch==2.11.0'"
        " (a wheel's path or address will do)."
    )


def older_cpu_build(python: str, wanted: str, version: str) -> str:
    """The newest version below `version` that `wanted` allows and that needs no CUDA packages; empty for none."""
    while version:
        packages, _ = would_install(python, [f"{wanted},<{version}"])
        version = packages.get("torch", "")
        if version and not cuda_packages(packages):
            return version
    return ""


def cuda_packages(names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(CUDA_PACKAGES)]


def would_install(python: str, arguments: list[str]) -> tuple[dict[str, str], str]:
    """The versions of the packages that pip would install, or none and pip's reason. Downloads metadata only."""
    command = [python, "-m", "pip", "install", "--quiet", "--dry-run", "--report", "-", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        return {}, next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "pip failed")
    try:
        plan = [item["metadata"] for item in json.loads(done.stdout)["install"]]
        return {item["name"].lower().replace("_", "-"): item["version"] for item in plan}, "nothing to install"
    except (ValueError, KeyError):
        return {}, "pip's report could not be read"


def pip(python: str, *arguments: str) -> None:
    quiet = {**os.environ, "PYTHONWARNINGS": "ignore"}  # setuptools warns at every editable install
    command = [python, "-m", "pip", *arguments]
    if subprocess.run(command, check=False, stdin=subprocess.DEVNULL, env=quiet).returncode:
        stop(f"pip failed; its reason stands above. The command: {' '.join(command)}")


def succeeds(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def stop(message: str) -> None:
    print(message, file=sys.stderr)
    sys.exit(1)


if __name__ == "__main__":
    main()
