"""Makes a box, and in it three processes that have exported memory and wait for a fourth one's communicator.

python -m gpu_box.tests.demos.holder ROOT           prints the box's folder and the ids of the processes
"""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

from gpu_box.box import gpu_box


class Id(ctypes.Structure):
    """An ncclUniqueId."""

    _fields_ = [("bytes", ctypes.c_char * 128)]


def wait_for_the_fourth(rank):
    box, data = ctypes.CDLL("libgpubox.so"), ctypes.c_void_p()
    box.cudaMalloc(ctypes.byref(data), ctypes.c_size_t(1 << 21))
    box.cudaIpcGetMemHandle(ctypes.create_string_buffer(64), data)
    box.ncclCommInitRank(ctypes.byref(ctypes.c_void_p()), 4, Id(b"comm-test"), rank)


if __name__ == "__main__":
    if "GPU_BOX_DIR" in os.environ:
        wait_for_the_fourth(int(sys.argv[1]))
    with gpu_box(Path(sys.argv[1])) as box:
        env = box.environment() | {"NCCL_RAS_ENABLE": "0"}
        command = [sys.executable, "-m", "gpu_box.tests.demos.holder"]
        ranks = [subprocess.Popen([*command, str(rank)], env={**os.environ, **env}) for rank in range(3)]
        print(box.folder, *(process.pid for process in ranks), flush=True)
        ranks[0].wait()
        ranks[1].wait()
