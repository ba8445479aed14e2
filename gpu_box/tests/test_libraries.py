"""The libraries of the box are used whatever other libraries of the same names the environment has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from gpu_box.box import gpu_box as new_box
from gpu_box.build import TORCH, cache
from tests.gpu.fixtures import need_box

pytestmark = [pytest.mark.gpu, pytest.mark.slow]
#: Every torch that is set up on this machine for this Python, and the one of the tests.
VERSIONS = sorted(
    {TORCH, *(path.parent.name.split("-")[1] for path in cache().glob(f"*-cp3{sys.version_info[1]}/.torch-complete"))}
)
#: Prints the libraries of NVIDIA's names that the process has loaded. They are used: a Linear, a collective, a profile.
PROGRAM = """
import json, re
import torch, torch.distributed as dist
torch.nn.Linear(64, 64).cuda()(torch.randn(8, 64, device="cuda")).sum().backward()
dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
dist.all_reduce(torch.ones(3, device="cuda"))
with torch.profiler.profile():
    torch.cuda.synchronize()
names = re.findall(r"\\S*/lib(?:cu|nccl|nvrtc|nvshmem|nvidia)\\S*", open("/proc/self/maps").read())
print(json.dumps([torch.__version__, sorted(set(names))]))
dist.destroy_process_group()
"""
PYTHON_WITH_RPATH = "int Py_BytesMain(int, char**); int main(int c, char** v) { return Py_BytesMain(c, v); }"


def write_wheels(box: Path, folder: Path) -> Path:
    """Libraries as NVIDIA's wheels have them, by all layouts that torch knows. They have no function."""
    paths = {}
    for soname in (path.name for path in box.glob("lib*.so.*") if "-box" not in path.name):
        paths[soname] = folder / soname
        subprocess.run(
            ["gcc", "-shared", "-x", "c", "/dev/null", f"-Wl,-soname,{soname}", "-o", folder / soname], check=True
        )
    names = ("cublas", "cudnn", "cuda_nvrtc", "cuda_runtime", "cuda_cupti", "cufft", "curand", "cusparse", "cusparselt",
             "cusolver", "nccl", "nvshmem", "cufile", "cu12", "cu13")  # fmt: skip
    for name in names:
        (folder / "nvidia" / name).mkdir(parents=True)
        (folder / "nvidia" / name / "lib").symlink_to(folder)
    return folder


@pytest.fixture(params=VERSIONS)
def box(request):
    with new_box(need_box(request.param), devices=1, memory="1G") as box:
        yield box


@pytest.mark.timeout(300)
@pytest.mark.parametrize("where", ["site-packages", "script's folder", "interpreter's RPATH"])
def test_libraries_of_the_environment_are_not_loaded(box, tmp_path, where):
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    write_wheels(box.root, wheels)
    script = (wheels if where == "script's folder" else tmp_path) / "program.py"
    script.write_text(PROGRAM)
    base = {**os.environ, "PYTHONPATH": str(wheels) if where == "site-packages" else ""}
    python = link_python(tmp_path, wheels) if where == "interpreter's RPATH" else sys.executable
    done = subprocess.run(
        [python, script], env={**base, **box.environment(base)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done
    version, loaded = json.loads(done.stdout.splitlines()[-1])
    assert version.partition("+")[0] == box.root.parent.name.split("-")[1]
    assert len(loaded) > 10 and {str(Path(name).parent) for name in loaded} == {str(box.root)}, loaded


def link_python(folder: Path, libraries: Path) -> Path:
    """A Python as conda's: it looks for every library in a folder of its own before LD_LIBRARY_PATH."""
    if not sysconfig.get_config_var("Py_ENABLE_SHARED"):
        pytest.skip("not possible here: this Python has no library to link")
    lib, version = sysconfig.get_config_var("LIBDIR"), sysconfig.get_config_var("LDVERSION")
    home = Path(sys.prefix, "bin")  # a virtual environment is found by the path of the executable
    python = folder / "bin" / "python"
    python.parent.mkdir()
    (folder / "pyvenv.cfg").write_text((Path(sys.prefix) / "pyvenv.cfg").read_text() if home.exists() else "")
    (folder / "lib").symlink_to(Path(sys.prefix) / "lib")
    source = folder / "python.c"
    source.write_text(PYTHON_WITH_RPATH)
    rpath = ("-Wl,--disable-new-dtags", f"-Wl,-rpath,{libraries}:{lib}")
    subprocess.run(["gcc", source, "-o", python, f"-L{lib}", f"-lpython{version}", *rpath], check=True)
    return python
