"""Find the device that a call moves a tensor to, as far as the call says."""

from __future__ import annotations

import ast
import re

from distdbg.lint.script.script import argument

_DEVICE = re.compile(r"(?:^|_)(?:device|dev|rank|gpu|cuda)(?:_|$|:|\d)", re.IGNORECASE)


def to_gpu(call: ast.Call) -> bool:
    """`.cuda()`, `.to("cuda:0")`, `.to(device)`: what is called a device is taken for a GPU."""
    if isinstance(call.func, ast.Attribute) and call.func.attr == "cuda":
        return True
    match argument(call, 0, "device"):
        case ast.Constant(value=str(name)):
            return name.startswith("cuda")
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return _DEVICE.search(name) is not None
    return False


def of_several_gpus(trainer: ast.Call) -> bool:
    """A Trainer of Lightning that is told how many devices or nodes it has, and not that it is one."""
    told = [k.value for k in trainer.keywords if k.arg in ("devices", "gpus", "strategy", "num_nodes")]
    return any(not isinstance(v, ast.Constant) or v.value not in (1, "1", None, "auto") for v in told)
