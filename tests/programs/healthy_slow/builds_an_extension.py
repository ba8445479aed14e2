"""One rank builds a C++ extension with a compiler that takes 15 s, the other waits for its lock file, before the first
step. Fools "rank 1 sleeps in a loop of its own".

The compiler fails in the end, and the script goes on without the extension.
Quiet for: 15 s
Verdict: none; exit: 0
On two ranks.
"""

import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.cpp_extension import load_inline

COMPILER = "#!/bin/sh\nend=$(($(date +%s) + 15))\nwhile [ $(date +%s) -lt $end ]; do :; done\nexit 1\n"

folder = Path("extensions").absolute()
folder.mkdir(exist_ok=True)
compiler = folder / f"compiler-{os.environ['RANK']}"
compiler.write_text(COMPILER)
compiler.chmod(0o755)
os.environ |= {"TORCH_EXTENSIONS_DIR": str(folder), "CXX": str(compiler), "TORCH_DONT_CHECK_COMPILER_ABI": "1"}
try:
    load_inline("my_ops", "int one() { return 1; }", functions=["one"])
except (RuntimeError, ImportError):
    print("no extension", flush=True)
dist.init_process_group("gloo")
for _ in range(20):
    dist.all_reduce(torch.ones(8))
dist.barrier()
dist.destroy_process_group()
