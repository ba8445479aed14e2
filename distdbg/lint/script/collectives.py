"""Find calls that every rank of a group must enter."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from distdbg.evidence.ops import COLLECTIVE, OPERATIONS, SETUP, of_kind
from distdbg.lint.rule import Context
from distdbg.lint.script.forwards import forward_of
from distdbg.lint.script.kinds import PREPARED
from distdbg.lint.script.loops import for_evaluation
from distdbg.lint.script.roles import A_MODEL
from distdbg.lint.script.script import argument, has_stars, is_constant, last_word, names_in
from distdbg.lint.script.wrapped import wrapper_of

_OF_TORCH = of_kind(COLLECTIVE, SETUP) - {"init_process_group", "coalesced", "split_group", "shrink_group"}
_OF_ACCELERATE = {
    "wait_for_everyone", "gather", "gather_for_metrics", "reduce", "pad_across_processes", "save_state",
    "get_state_dict",
}  # fmt: skip
_WRAPS = "the constructors of DDP and FSDP wait for all ranks, and the others do not come"
#: of these, those that wait for nobody under DDP
_SAVES = {"save_state", "get_state_dict"}
_IF_SHARDED = "with FSDP or DeepSpeed it waits for all ranks, and the others do not enter it"
#: of Lightning's Fabric and Trainer
_OF_FABRIC = {"barrier", "all_gather", "all_reduce", "broadcast", "save"}
_OF_TRAINER = {"save_checkpoint"}
#: modules of libraries, and what all ranks must call of them
_LIBRARIES = (
    "horovod.torch.", "ignite.distributed.", "torch_xla.core.xla_model.", "deepspeed.comm.", "accelerate.utils.",
    "detectron2.utils.comm.", "mmengine.dist.", "lightning.fabric.utilities.distributed.",
)  # fmt: skip
_OF_LIBRARIES = {
    "all_reduce", "all_gather", "all_gather_object", "broadcast", "broadcast_object_list", "barrier", "allreduce",
    "allreduce_", "allgather", "allgather_object", "broadcast_", "broadcast_parameters", "broadcast_object",
    "broadcast_optimizer_state", "rendezvous", "mesh_reduce", "gather_object", "wait_for_everyone", "collect_results",
}  # fmt: skip
#: under DDP alone save_state waits for no rank
_SAVES_TOGETHER = re.compile(
    r"(?:FullyShardedDataParallel|DeepSpeed|MegatronLM)Plugin\(|automatic_checkpoint_naming\s*=\s*True"
)
#: names that mean a collective in any module or helper
_UNMISTAKABLE = {op.name for op in OPERATIONS if op.only_torchs} | {"wait_for_everyone"}
#: names that mean one in a module of a project that is about ranks: `comm.synchronize()`
_BY_MODULE = _UNMISTAKABLE | {"barrier", "synchronize"}
_CHECKPOINTS = re.compile(
    r"^torch\.distributed\.checkpoint\.(?:\w+\.)?(?:save|load|async_save|get_model_state_dict|get_state_dict|get_optimizer_state_dict)$"
)
#: helpers of a project whose name says that all ranks wait: `ddp_barrier()`, `dist_barrier()`
_BARRIER = re.compile(r"^(?:ddp|dist|distributed|torch|mp|world|global)_barrier$")
#: modules of a project that wrap torch.distributed, by their names
_DISTRIBUTED = re.compile(r"(?:^|[._])(?:dist|distributed|dist_utils|comm|ddp|parallel)(?:[._]|$)")
#: words of all that `collective` knows
COLLECTIVE_WORDS = re.compile(
    rf"^(?:{'|'.join(sorted(_OF_TORCH | _OF_ACCELERATE | _BY_MODULE))})$|checkpoint|dcp|dist_cp|FSDP|FullySharded|"
    r"^\w+_barrier$|DDP|DistributedDataParallel|^fabric$|lightning|^deepspeed$|horovod|xla_model|^ignite$|accelerat|torchmetrics",
    re.IGNORECASE,
)
FORWARD_OF_FSDP, FORWARD_OF_DDP = "forward of an FSDP model", "forward of a DDP model"
FORWARD_OF_PREPARED = "forward of a prepared model"
_IF_WRAPPED = (
    "with FSDP or DeepSpeed it waits for all ranks, and with DDP if the model has buffers; the other ranks do not come"
)
_FABRIC_SHARDS = re.compile(r"\bFSDPStrategy\(|strategy\s*=\s*[\"']fsdp")
_SENDS_BUFFERS = (
    "DDP broadcasts the model's buffers before it, if there are any, and the other ranks do not come; "
    "model.module broadcasts nothing"
)
#: of an evaluation elsewhere that is given the model, by the model's wrapper
_IF_CALLED = {
    "ddp": "if it calls the DDP model that it is given, DDP first broadcasts the model's buffers; pass model.module",
    "fsdp": "if it calls the FSDP model that it is given, that waits for the parameters of all ranks",
    PREPARED: f"if it calls the prepared model that it is given: {_IF_WRAPPED}",
}
STATE_OF_FSDP = "state_dict of an FSDP model"
#: last parts of all names that may be one: most calls are told apart by these
_LAST = (
    _OF_TORCH | _OF_ACCELERATE | _OF_FABRIC | _OF_TRAINER | _OF_LIBRARIES | _BY_MODULE
    | {"prepare", "compute", "save", "load", "async_save"}
    | {"state_dict", "get_model_state_dict", "get_optimizer_state_dict"}
)  # fmt: skip
#: where the tensor of this rank is among the arguments
TENSOR_PLACE = {
    "all_reduce": 0, "broadcast": 0, "reduce": 0, "all_gather": 1, "all_gather_into_tensor": 1,
    "reduce_scatter_tensor": 1,
}  # fmt: skip
_GROUP_PLACE = {op.name: op.group for op in OPERATIONS}


@dataclass(frozen=True)
class Collective:
    """A call that all ranks must enter. `of_library`: torch or a known library says so, not only the call's name.

    `where`: says under which condition it waits for other ranks, where that cannot be seen; empty for always.
    """

    name: str
    of_library: bool = True
    where: str = ""

    @property
    def operation(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def is_forward(self) -> bool:
        return self.name in (FORWARD_OF_FSDP, FORWARD_OF_DDP, FORWARD_OF_PREPARED)


def waits(context: Context, call: ast.Call) -> bool:
    """Does the call wait for other ranks, whatever else holds?"""
    entered = collective(context, call)
    return entered is not None and not entered.where


def collective(context: Context, call: ast.Call) -> Collective | None:
    """What the call is if all ranks must enter it, else nothing."""
    if call not in context.collectives:
        context.collectives[call] = _found(context, call)
    found = context.collectives[call]
    return found if isinstance(found, Collective) else None


def _found(context: Context, call: ast.Call) -> Collective | None:
    last = context.script.last_names[call]
    if last[-8:] == "_barrier" and _BARRIER.match(last) and _may_wait(context, call):
        return Collective(last, of_library=False)
    found = _collective(context, call) if last in _LAST else None
    return found or _forward(context, call)


def _forward(context: Context, call: ast.Call) -> Collective | None:
    """A model that is called: FSDP gathers its parameters, DDP sends its buffers before the call."""
    model = forward_of(call) if context.wraps_or_prepares else None
    if model is None:
        return None
    wrapper = wrapper_of(context.values, model)
    if wrapper == "fsdp":
        return Collective(FORWARD_OF_FSDP, of_library=False)
    if wrapper == PREPARED:
        sharded = "Fabric(" in context.script.text and _FABRIC_SHARDS.search(context.script.text)
        return Collective(FORWARD_OF_PREPARED, of_library=False, where="" if sharded else _IF_WRAPPED)
    if wrapper:
        return Collective(FORWARD_OF_DDP, of_library=False, where=_SENDS_BUFFERS)
    last = context.script.last_names[call]
    if last[:1].isupper() or not for_evaluation(last) or context.values.callees(call):
        return None
    given = (wrapper_of(context.values, one) for one in call.args if isinstance(one, (ast.Name, ast.Attribute)))
    wrapper = next(filter(None, given), "")
    return Collective(last, of_library=False, where=_IF_CALLED[wrapper]) if wrapper else None


def _collective(context: Context, call: ast.Call) -> Collective | None:
    name = context.script.call_names[call]
    last = context.script.last_names[call]
    if name.startswith("torch.distributed."):
        return _of_torch(context, call, name, last)
    if last in _OF_LIBRARIES and name.startswith(_LIBRARIES):
        return None if _of_a_group(call, last) else Collective(name)
    if not isinstance(call.func, ast.Attribute):
        return Collective(last, of_library=False) if _of_a_project(context, call, name, last) else None
    if last == "state_dict" and _sharded_fully(context, call.func.value):
        return Collective(STATE_OF_FSDP, of_library=False)
    plain = last in _UNMISTAKABLE and _of_a_module(context, call.func) and not _of_a_group(call, last)
    if last == "synchronize" and _of_a_module(context, call.func) and _of_a_project(context, call, name, last):
        return Collective(name, of_library=False)
    return Collective(name) if plain else _of_a_framework(context, call, call.func, last)


def _of_torch(context: Context, call: ast.Call, name: str, last: str) -> Collective | None:
    if _CHECKPOINTS.match(name):
        alone = argument(call, -1, "no_dist") is not None or _of_a_group(call, last) or _of_a_whole_model(context, call)
        return None if alone else Collective(name)
    if last not in _OF_TORCH:
        return None
    if last == "new_group":  # with this ranks that are not in the group need not come to it
        local = argument(call, 4, "use_local_synchronization")
        smaller = local is not None and not (isinstance(local, ast.Constant) and not local.value)
    else:
        smaller = _of_a_group(call, last)
    return None if smaller else Collective(f"dist.{last}")


def _of_a_framework(context: Context, call: ast.Call, called: ast.Attribute, last: str) -> Collective | None:
    """A method that a framework wants all ranks to call, of an object that is called as its class is."""
    owner = last_word(called.value)
    if (
        last == "prepare"
        and any(A_MODEL.match(last_word(a)) for a in call.args)
        and _is_accelerator(context, called.value)
    ):
        return Collective("accelerator.prepare", where=_WRAPS)
    if last in _OF_ACCELERATE and _is_accelerator(context, called.value):
        alone = last in _SAVES and not _SAVES_TOGETHER.search(context.script.text)
        return Collective(f"accelerator.{last}", where=_IF_SHARDED if alone else "")
    if last == "compute":
        return Collective(f"{owner}.compute", of_library=False) if _is_a_metric_of_all(context, called.value) else None
    known = (
        (owner == "fabric" and last in _OF_FABRIC)
        or (owner == "trainer" and last in _OF_TRAINER and "lightning" in context.frameworks)
        or (last == "save_checkpoint" and "deepspeed" in context.frameworks and owner.endswith("engine"))
    )
    return Collective(f"{owner}.{last}") if known else None


def _is_a_metric_of_all(context: Context, metric: ast.expr) -> bool:
    """Of torchmetrics: compute() gathers from all ranks, unless the metric is told another way."""
    made = [call for value in context.values.bound(metric) for call in context.script.within(value, ast.Call)]
    return any(
        context.script.call_names[call].startswith("torchmetrics.")
        and argument(call, -1, "sync_on_compute") is None
        and argument(call, -1, "dist_sync_fn") is None
        and not has_stars(call)
        for call in made
    )


def _is_accelerator(context: Context, node: ast.expr) -> bool:
    """Made by accelerate, or called so where it comes from elsewhere."""
    sites = context.values.sites(node)
    if sites:
        return all(context.values.kind(site) == "accelerator" for site in sites)
    return all(last_word(one) == "accelerator" for one in (node, *context.values.bound(node)))


def _of_a_project(context: Context, call: ast.Call, name: str, last: str) -> bool:
    """`from .distributed import barrier`: by its name, unless its file is in sight and shows that it is none."""
    if last not in _BY_MODULE:
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
