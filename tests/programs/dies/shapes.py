"""One rank multiplies matrices that do not fit: the message is known, and so is what it means.

Verdict: rank-exception; ranks: 1; exit: 1; says: mat1
On two ranks.
"""

import os
import time

import torch

if os.environ["RANK"] == "1":
    torch.nn.Linear(4, 2)(torch.ones(3, 5))
time.sleep(60)
