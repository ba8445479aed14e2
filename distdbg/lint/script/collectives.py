"""Find calls that every rank of a group must enter."""

from __future__ import annotations

import ast
import re

from distdbg.evidence.ops import COLLECTIVE, OPERATIONS, SETUP, of_kind
from distdbg.lint.rule import Context
from distdbg.lint.script.script import argument, is_constant, names_in

_OF_TORCH = of_kind(COLLECTIVE, SETUP) - {"init_process_group", "coalesced", "split_group", "shrink_group"}
_OF_ACCELERATE = {"wait_for_everyone", "gather", "gather_for_metrics", "reduce", "save_state"}
#: under DDP alone save_state waits for no rank
_SAVES_TOGETHER = re.compile(
    r"(?:FullyShardedDataParallel|DeepSpeed|MegatronLM)Plugin\(|automatic_checkpoint_naming\s*=\s*True"
)
#: names that mean a collective in any module or helper
_UNMISTAKABLE = {op.name for op in OPERATIONS if op.only_torchs} | {"wait_for_everyone"}
_CHECKPOINTS = re.compile(
    r"^torch\.distributed\.checkpoint\.(?:\w+\.)?(?:save|load|async_save|get_model_state_dict|get_state_dict|get_optimizer_state_dict)$"
)
#: helpers of a project whose name says that all ranks wait: `ddp_barrier()`, `dist_barrier()`
_BARRIER = re.compile(r"^(?:ddp|dist|distributed|torch|mp|world|global)_barrier$")
#: modules of a project that wrap torch.distributed, by their names
_DISTRIBUTED = re.compile(r"(?:^|[._])(?:dist|distributed|dist_utils|comm|ddp|parallel)(?:[._]|$)")
#: words of all that `collective` knows
COLLECTIVE_WORDS = re.compile(
    rf"^(?:{'|'.join(sorted(_OF_TORCH | _OF_ACCELERATE | _UNMISTAKABLE))})$|checkpoint|dcp|dist_cp|FSDP|FullySharded|"
    r"^\w+_barrier$",
    re.IGNORECASE,
)
#: last parts of all names that may be one: most calls are told apart by these
_LAST = (
    _OF_TORCH | _OF_ACCELERATE | _UNMISTAKABLE | {"state_dict", "save", "load", "async_save", "get_model_state_dict"}
    | {"get_state_dict", "get_optimizer_state_dict"}
)  # fmt: skip
#: where the tensor of this rank is among the arguments
TENSOR_PLACE = {
    "all_reduce": 0, "broadcast": 0, "reduce": 0, "all_gather": 1, "all_gather_into_tensor": 1,
    "reduce_scatter_tensor": 1,
}  # fmt: skip
_GROUP_PLACE = {op.name: op.group for op in OPERATIONS}


def collective(context: Context, call: ast.Call) -> str:
    """What the call is called if it is a collective of all ranks, else nothing."""
    last = context.script.last_names[call]
    if last[-8:] == "_barrier" and _BARRIER.match(last) and _may_wait(context, call):
        return last
    return _collective(context, call) if last in _LAST else ""


def _collective(context: Context, call: ast.Call) -> str:
    name = context.script.call_names[call]
    last = context.script.last_names[call]
    if _CHECKPOINTS.match(name):
        alone = argument(call, -1, "no_dist") is not None or _of_a_group(call, last) or _of_a_whole_model(context, call)
        return "" if alone else name
    if name.startswith("torch.distributed.") and last in _OF_TORCH:
        if last == "new_group":  # with this ranks that are not in the group need not come to it
            local = argument(call, 4, "use_local_synchronization")
            smaller = local is not None and not (isinstance(local, ast.Constant) and not local.value)
        else:
            smaller = _of_a_group(call, last)
        return "" if smaller else f"dist.{last}"
    if not isinstance(call.func, ast.Attribute):
        return last if _of_a_project(context, call, name, last) else ""
    if last in _OF_ACCELERATE and context.values.sites(call.func.value, "accelerator"):
        alone = last == "save_state" and not _SAVES_TOGETHER.search(context.script.text)
        return "" if alone else f"accelerator.{last}"
    if last == "state_dict" and _sharded_fully(context, call.func.value):
        return "state_dict of an FSDP model"
    return name if last in _UNMISTAKABLE and _of_a_module(context, call.func) and not _of_a_group(call, last) else ""


def _of_a_project(context: Context, call: ast.Call, name: str, last: str) -> bool:
    """`from .distributed import barrier`: by its name, unless its file is in sight and shows that it is none."""
    if last not in _UNMISTAKABLE and last != "barrier":
        return False
    module = name.rpartition(".")[0]
    return _DISTRIBUTED.search(module) is not None and _may_wait(context, call) and not _of_a_group(call, last)


def _may_wait(context: Context, call: ast.Call) -> bool:
    """What it runs is not in sight, or calls torch.distributed: `if initialized(): dist.barrier()`, too."""
    functions = context.values.callees(call)
    inner = (c for function in functions for c in context.script.within(function, ast.Call))
    names = (context.script.call_names[c] for c in inner if context.script.last_names[c] in _OF_TORCH)
    return not functions or any(name.startswith("torch.distributed.") for name in names)


def _of_a_whole_model(context: Context, call: ast.Call) -> bool:
    """`get_model_state_dict(model)` waits for no rank before the model is sharded: is it nowhere sharded in sight?"""
    if not context.script.last_names[call].endswith("state_dict"):
        return False
    model = argument(call, 0, "model")
    return model is None or not context.values.sites(model, "fsdp")


def _of_a_module(context: Context, function: ast.Attribute) -> bool:
    """`comm.all_gather(…)` of an imported module; an object of that name may be a group of some ranks."""
    root: ast.expr = function
    while isinstance(root, ast.Attribute):
        root = root.value
    return isinstance(root, ast.Name) and root.id in context.script.file_of(root).names


def _of_a_group(call: ast.Call, last: str) -> bool:
    """A collective of a smaller group is often guarded by who belongs to it."""
    given = argument(call, _GROUP_PLACE.get(last, -1), "group") or argument(call, -1, "process_group")
    return given is not None and not is_constant(given, None) and "WORLD" not in names_in(given)


def _sharded_fully(context: Context, model: ast.expr) -> bool:
    """An FSDP1 model: its state_dict gathers, unless the file asks for local or sharded ones."""
    sites = context.values.sites(model, "fsdp")
    if (
        not sites
        or _otherwise(context, model)
        or re.search(r"LOCAL_STATE_DICT|SHARDED_STATE_DICT|LocalStateDict", context.script.text)
    ):
        return False
    return all(context.script.last_names[s] != "fully_shard" for s in sites)


def _otherwise(context: Context, model: ast.expr) -> bool:
    """`full if args.fsdp else model.state_dict()`: the model is no FSDP model there."""
    below: ast.AST = model
    for outer in context.script.above(model):
        if isinstance(outer, ast.IfExp) or (isinstance(outer, ast.If) and below is not outer.test):
            behind = below is outer.orelse if isinstance(outer, ast.IfExp) else below in outer.orelse
            if behind and any(re.search(r"fsdp|shard", w, re.IGNORECASE) for w in names_in(outer.test)):
                return True
        below = outer
    return False
