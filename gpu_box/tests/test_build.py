"""Building the box: what it says where it cannot be built, and what two checkouts share."""

from __future__ import annotations

import pytest

from gpu_box import build as building
from gpu_box.build import NotPossible, build


def test_without_a_compiler_it_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotPossible, match=r"g\+\+ is missing: install a C\+\+ compiler"):
        build(folder=tmp_path / "cache")


def test_without_torch_to_download_it_says_so_and_leaves_nothing(tmp_path, monkeypatch, need):
    need("g++", "g++")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    with pytest.raises(NotPossible, match=r"torch 2\.0\.99 with CUDA cannot be installed: ERROR: No matching dist"):
        build("2.0.99", folder=tmp_path / "cache")
    assert not list((tmp_path / "cache").iterdir())


def test_other_sources_have_libraries_of_their_own(tmp_path, monkeypatch):
    """What nobody has used for a week is removed. The compiler is not called."""
    monkeypatch.setattr(building, "_install", lambda torch, root: (root / ".torch-complete").touch())
    monkeypatch.setattr(building, "_cuda_version", lambda root: 13000)
    monkeypatch.setattr(building, "compile_box", lambda box, version: box.mkdir() or box / "libgpubox.so")
    monkeypatch.setattr(building, "_compile_shims", lambda lib, whole, version: whole.touch())
    monkeypatch.setattr(building, "_link_first", lambda lib, box, shims: None)
    first = build(folder=tmp_path)
    assert (first / "libgpubox.so").exists() and build(folder=tmp_path) == first
    monkeypatch.setattr(building, "_FLAGS", ("-O3",))
    second = build(folder=tmp_path)
    assert second != first and second.parent == first.parent and first.exists()
    monkeypatch.setattr(building, "_UNUSED_S", -1)
    assert build(folder=tmp_path) == second and second.exists() and not first.exists()
