import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import FullStateDictConfig, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def first(model):
    policy = FullStateDictConfig(rank0_only=True)  # expect: full-state-dict-gather
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, policy):
        state = model.state_dict()
    if dist.get_rank() == 0:
        torch.save(state, "model.pt")


def second(model):
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):  # expect: full-state-dict-gather
        state = model.state_dict()
    if dist.get_rank() == 0:
        torch.save(state, "model.pt")


def third(model):
    return get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))  # expect: full-state-dict-gather
