import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import StateDictType


def save(model, optimizer, options=None):
    options = options or StateDictOptions(full_state_dict=False)
    state, optimizer_state = get_state_dict(model, optimizer, options=options)
    dcp.save({"model": state, "optimizer": optimizer_state}, checkpoint_id="checkpoint")


def save_by_the_old_way(model):
    with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        return model.state_dict()
