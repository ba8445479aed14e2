"""Find the device that a call moves a tensor to, as far as the call says."""

from __future__ import annotations

import ast


def of_several_gpus(trainer: ast.Call) -> bool:
    """A Trainer of Lightning that is told how many devices or nodes it has, and not that it is one."""
    told = [k.value for k in trainer.keywords if k.arg in ("devices", "gpus", "strategy", "num_nodes")]
    return any(not isinstance(v, ast.Constant) or v.value not in (1, "1", None, "auto") for v in told)
