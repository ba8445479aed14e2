"""Find the versions of the software of a job, without importing any of it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import re
import shutil
from pathlib import Path

from distdbg import __version__

_DRIVER = Path("/proc/driver/nvidia/version")
#: Named in job.json where they are installed.
_LIBRARIES = ("transformers", "accelerate", "lightning", "torchtitan", "deepspeed", "numpy", "triton")


def versions() -> dict[str, str]:
    """Name -> version; what is not there is left out."""
    torch = _torch()
    found = {
        "distdbg": __version__,
        "python": platform.python_version(),
        "torch": torch.get("__version__", ""),
        "cuda": torch.get("cuda", ""),
        "nccl": _nccl(),
        "py-spy": _installed("py-spy"),
        "driver": driver_version() or "",
        **{name: _installed(name) for name in _LIBRARIES},
    }
    return {name: version for name, version in found.items() if version}


def version_lines() -> list[str]:
    """As `distdbg --version` prints them; what is not there is said, and why."""
    torch = _torch()
    with_cuda = "cuda" in torch
    nccl = _nccl() or (
        "part of torch, version not known without importing it" if with_cuda else "none: torch without CUDA"
    )
    elsewhere = shutil.which("py-spy")
    found = {
        "distdbg": __version__,
        "python": platform.python_version(),
        "torch": torch.get("__version__", "not installed") + (f", CUDA {torch['cuda']}" if with_cuda else ""),
        "nccl": nccl if torch else "none: torch is not installed",
        "py-spy": _installed("py-spy") or (f"at {elsewhere}" if elsewhere else "not installed"),
        "driver": driver_version() or "none: no NVIDIA driver is loaded",
    }
    return [f"{name} {version}" for name, version in found.items()]


def torch_version() -> str | None:
    """None without torch."""
    return _torch().get("__version__")


def _torch() -> dict[str, str]:
    """What torch/version.py says, as text: __version__, cuda, hip; empty without torch."""
    try:
        spec = importlib.util.find_spec("torch")
    except (ImportError, ValueError):  # somebody has put half a torch into sys.modules
        return {}
    if spec is None or not spec.submodule_search_locations:
        return {}
    try:
        text = (Path(spec.submodule_search_locations[0]) / "version.py").read_text(encoding="utf-8")
    except (OSError, ValueError):
        text = ""
    assigned = re.findall(r"""^(__version__|cuda|hip)\b[^=\n]*=\s*['"]([^'"\n]+)['"]""", text, re.MULTILINE)
    return {"__version__": _installed("torch") or "of unknown version"} | dict(assigned)


def _nccl() -> str:
    """Of the package that torch's CUDA wheels bring; empty where NCCL is part of torch, or nowhere."""
    return next((v for v in (_installed(f"nvidia-nccl-cu{n}") for n in (13, 12, 11)) if v), "")


def driver_version(path: Path = _DRIVER) -> str | None:
    """The NVIDIA kernel driver's, where it is loaded."""
    try:
        found = re.search(r"\s(\d+\.\d+(?:\.\d+)?)\s", path.read_text(errors="replace"))
    except OSError:
        return None
    return found.group(1) if found else None


def _installed(name: str) -> str:
    try:
        return str(importlib.metadata.version(name) or "")
    except Exception:  # not installed; or metadata that is broken, which is not ours to judge
        return ""
