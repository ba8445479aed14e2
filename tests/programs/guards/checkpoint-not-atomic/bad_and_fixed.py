"""Each epoch overwrites the only checkpoint, and the guard was asked to mend: a save that fails leaves the one before.

Guard: checkpoint-not-atomic; line: torch.save(state, path); ranks: 0
Modes: checkpoint-not-atomic=fix
"""

import os
import stat
import tempfile
import zipfile

import torch
import torch.distributed as dist


class CannotBeSaved:
    def __reduce__(self):
        raise RuntimeError("half of it is written")


def save(state, path):
    torch.save(state, path)


def check(folder):
    path = f"{folder}/last.pt"
    os.symlink(path, f"{folder}/newest")
    for epoch in range(2):
        save({"epoch": epoch, "weights": torch.ones(100)}, path)
        os.chmod(path, 0o640)
    before = os.stat(path).st_ino
    save({"epoch": 2, "weights": torch.ones(100)}, f"{folder}/newest")
    assert os.stat(path).st_ino != before
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o640
    assert zipfile.ZipFile(path).namelist()[0] == "newest/data.pkl"  # as without the guard
    try:
        save([torch.ones(100), CannotBeSaved()], path)
    except RuntimeError as error:
        assert "half of it" in str(error)
    assert torch.load(path)["epoch"] == 2
    assert sorted(os.listdir(folder)) == ["last.pt", "newest"], os.listdir(folder)
    assert os.path.islink(f"{folder}/newest")
    torch.save(1, "/dev/null")


dist.init_process_group("gloo")
if dist.get_rank() == 0:
    check(tempfile.mkdtemp())
dist.barrier()
dist.destroy_process_group()
