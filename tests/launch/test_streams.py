"""What a rank writes is what it would have written under plain torchrun, byte by byte."""

import textwrap

import pytest

pytestmark = pytest.mark.slow

SCRIPT = """
    import os, sys, threading, traceback, warnings
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, Dataset

    class Data(Dataset):
        def __len__(self):
            return 6
        def __getitem__(self, i):
            if i == 5:
                raise IndexError(f"no item {i}")
            return torch.ones(4)

    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    try:
        loss = model(torch.ones(2, 4)).sum()
        loss.backward()
        loss.backward()
    except RuntimeError:
        traceback.print_exc()
    warnings.warn("a warning")
    helper = threading.Thread(target=lambda: 1 / 0, name="helper")
    helper.start()
    helper.join()
    sys.stdout.write("no newline at the end \\r of this")
    sys.stdout.buffer.write(bytes(range(256)))
    dist.barrier()
    for batch in DataLoader(Data(), batch_size=2):
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
"""


def test_both_streams_of_a_rank_are_those_of_plain_torchrun(distdbg, torchrun, tmp_path):
    (tmp_path / "train.py").write_text(textwrap.dedent(SCRIPT))
    plain = torchrun("--nproc-per-node", "1", "--standalone", "-r", "3", "--log-dir", tmp_path / "plain", "train.py")
    ours = distdbg("launch", "--nproc-per-node", "1", "--standalone", "train.py", env={"OMP_NUM_THREADS": "1"})
    assert plain.code == 1, plain
    assert ours.code == 1, ours
    for stream in ("stdout", "stderr"):
        (theirs,) = (tmp_path / "plain").glob(f"*/attempt_0/0/{stream}.log")
        assert ours.run.attempt(1).rank(0).stream(stream).read_bytes() == theirs.read_bytes()


def test_torchruns_own_log_folder_links_to_our_logs(distdbg, tmp_path):
    (tmp_path / "who.py").write_text("import os; print(os.environ['RANK'])")
    result = distdbg("launch", "--nproc-per-node", "2", "-t", "3", "--log-dir", "logs", "who.py")
    assert result.code == 0, result
    found = sorted((tmp_path / "logs").glob("*/attempt_0/*/stdout.log"))
    assert [path.read_text() for path in found] == ["0\n", "1\n"]
    assert sorted(result.out.splitlines()) == ["[rank 0] 0", "[rank 1] 1"], "what is teed is shown"


def test_no_capture_gives_the_ranks_the_terminal(distdbg, tmp_path):
    (tmp_path / "ask.py").write_text("import sys; print(input('who? '), sys.stdout.fileno())")
    result = distdbg("launch", "--no-capture", "ask.py", stdin=b"me\n")
    assert result.code == 0, result
    assert result.out == "who? me 1\n"
    assert not list(result.run.path.glob("attempts/1/ranks/*/stdout.log"))
    assert "succeeded" in result.err and "exit code 0: rank 0" in result.err
    assert not list(result.run.path.glob("attempts/1/dumps")), "who is asked is no hang"


def test_without_capture_there_is_a_verdict_all_the_same(distdbg, tmp_path):
    (tmp_path / "raise.py").write_text("import os\nif os.environ['RANK'] == '1': raise SystemExit('no')\nprint('hm')")
    result = distdbg("launch", "--no-capture", "--nodes", "2", "raise.py")
    assert result.code == 1 and "exit code 1: rank 1" in result.err, result


def test_the_start_says_what_was_decided_without_being_asked(distdbg, tmp_path):
    (tmp_path / "threads.py").write_text("import os; print(os.environ['OMP_NUM_THREADS'])")
    result = distdbg("launch", "--nproc-per-node", "2", "threads.py", env={"NCCL_DEUBG": "INFO"})
    assert f"OMP_NUM_THREADS={result.out.strip()}" in result.err
    assert "did you mean NCCL_DEBUG?" in result.err
    assert str(result.run.path.name) in result.err.splitlines()[0]
