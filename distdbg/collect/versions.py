"""Versions of what a job stands on, without importing any of it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import re
from pathlib import Path

from distdbg import __version__

_DRIVER = Path("/proc/driver/nvidia/version")


def versions() -> dict[str, str]:
    """Name -> version; what is not there is left out."""
    found = {"distdbg": __version__, "python": platform.python_version(), "torch": torch_version() or ""}
    for name in ("py-spy", "transformers", "accelerate", "lightning"):
        found[name] = _installed(name)
    found["nccl"] = next((v for v in (_installed(f"nvidia-nccl-cu{n}") for n in (13, 12, 11)) if v), "")
    found["driver"] = driver_version() or ""
    return {name: version for name, version in found.items() if version}


def version_lines() -> list[str]:
    """As `distdbg --version` prints them."""
    found = versions()
    missing = {"torch": "not installed", "nccl": "not installed", "py-spy": "not installed", "driver": "none"}
    names = ("distdbg", "python", "torch", "nccl", "py-spy", "driver")
    return [f"{name} {found.get(name) or missing.get(name, '')}" for name in names]


def torch_version() -> str | None:
    """From torch/version.py, which is text; None without torch."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        return None
    try:
        text = (Path(spec.submodule_search_locations[0]) / "version.py").read_text()
    except OSError:
        return _installed("torch") or None
    found = re.search(r"""__version__\s*=\s*['"]([^'"]+)""", text)
    return found.group(1) if found else _installed("torch") or None


def driver_version() -> str | None:
    """The NVIDIA kernel driver's, where it is loaded."""
    try:
        found = re.search(r"\s(\d+\.\d+(?:\.\d+)?)\s", _DRIVER.read_text())
    except OSError:
        return None
    return found.group(1) if found else None


def _installed(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
