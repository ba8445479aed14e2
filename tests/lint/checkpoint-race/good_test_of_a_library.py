import pytest
import torch
import torch.distributed as dist


@pytest.fixture
def checkpoint(tmp_path):
    path = tmp_path / "model.pt"
    torch.save({"rank": 0}, path)
    return path


def test_a_checkpoint_is_read(checkpoint):
    assert torch.load(checkpoint)["rank"] == (dist.get_rank() if dist.is_initialized() else 0)
