"""Both ranks build a C++ extension in a folder where a job that was killed has left its lock file.

Verdict: extension-build; ranks: 0-1; says: no process of its node holds
On two ranks.
"""

import os

from torch.utils.cpp_extension import load_inline

folder = os.path.abspath("extensions")
os.makedirs(os.path.join(folder, "my_ops"), exist_ok=True)
open(os.path.join(folder, "my_ops", "lock"), "a").close()
os.environ["TORCH_EXTENSIONS_DIR"] = folder
load_inline("my_ops", "int one() { return 1; }", functions=["one"])
