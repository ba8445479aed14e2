"""Megatron's distributed checkpoints: one tensor holds all layers of a stack, and the arguments follow."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("numpy")

from distdbg.errors import EvidenceUnreadable
from distdbg.shrink.checkpoint import plain
from distdbg.shrink.checkpoint.plain_names import PlainOrder
from tests.shrink import megatron_checkpoints as megatron

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("in_process")]


@pytest.mark.parametrize(
    ("job", "keep", "stages", "virtual"),
    [
        (megatron.Job(pipeline=4), "0,3,5,7", 4, None),
        (megatron.Job(pipeline=4), "0,7", 2, None),
        (megatron.Job(pipeline=2), "1,4,7", 1, None),
        (megatron.Job(pipeline=2, virtual=2), "0,2,5,7", 2, 2),
        (megatron.Job(pipeline=2, virtual=2), "2,5", 2, None),
    ],
)
def test_sizes_of_the_pipeline_follow(tmp_path, job, keep, stages, virtual):
    job.write_distributed(tmp_path / "run")
    plain.make_plain(str(tmp_path / "run"), tmp_path / "small", PlainOrder(keep=keep))
    arguments = megatron.load(tmp_path / "small" / "iter_0000100" / "common.pt")["args"]
    assert arguments.num_layers == arguments.encoder_num_layers == len(keep.split(","))
    assert arguments.pipeline_model_parallel_size == arguments.transformer_pipeline_model_parallel_size == stages
    assert arguments.virtual_pipeline_model_parallel_size == virtual
    assert arguments.attention_backend is megatron.AttnBackend.auto and arguments.params_dtype is torch.bfloat16


def test_arguments_about_single_layers_follow(tmp_path):
    hybrid = "M-|M*/MM"
    said = {"moe_layer_freq": 2, "linear_attention_freq": [1, 1, 0, 1], "window_attn_skip_freq": 2, "no_rope_freq": 4,
            "hybrid_layer_pattern": hybrid, "num_layers_in_first_pipeline_stage": 3}  # fmt: skip
    megatron.Job(layers=4, arguments=said).write_distributed(tmp_path / "run")
    plain.make_plain(str(tmp_path / "run"), tmp_path / "small", PlainOrder(keep="0,2,3"))
    after = megatron.load(tmp_path / "small" / "iter_0000100" / "common.pt")["args"]
    assert (after.moe_layer_freq, after.linear_attention_freq) == ([1, 1, 0], [1, 0, 1])
    assert (after.window_attn_skip_freq, after.no_rope_freq) == ([1, 1, 0], [0, 0, 1])
    assert (after.hybrid_layer_pattern, after.num_layers_in_first_pipeline_stage) == ("MM*/MM", None)


def test_iteration_that_is_not_there_is_refused(tmp_path):
    megatron.Job(layers=4).write_distributed(tmp_path / "run")
    (tmp_path / "run" / "latest_checkpointed_iteration.txt").write_text("200")
    with pytest.raises(EvidenceUnreadable, match="iter_0000200"):
        plain.make_plain(str(tmp_path / "run"), tmp_path / "small", PlainOrder())
    assert not list(tmp_path.rglob("small")) and not list(tmp_path.rglob(".small*"))


def test_file_of_each_rank_is_refused_with_a_way(tmp_path, distdbg):
    (tmp_path / "run" / "iter_0000100" / "mp_rank_00").mkdir(parents=True)
    (tmp_path / "run" / "iter_0000100" / "mp_rank_00" / "model_optim_rng.pt").write_bytes(b"")
    (tmp_path / "run" / "latest_checkpointed_iteration.txt").write_text("100")
    for source in (tmp_path / "run", tmp_path / "run" / "iter_0000100"):
        done = distdbg("shrink-model", source, tmp_path / "small")
        assert done.code == 3 and "--ckpt-convert-format torch_dist" in done.err, done


@pytest.mark.parametrize("embedded", [False, True])
def test_all_layers_in_one_tensor_need_no_pattern(tmp_path, embedded):
    job = megatron.Job(layers=6, arguments={"moe_layer_freq": [1, 0, 1, 1, 1, 1]})
    full = megatron.read_distributed(job.write_distributed(tmp_path / "run", embedded=embedded))
    made = plain.make_plain(str(tmp_path / "run"), tmp_path / "small", PlainOrder(keep="1,5"))
    assert made["verified"]["weights"] == "pass" and made["stacks"][0]["path"] == "decoder.layers"
    folder = tmp_path / "small" / "iter_0000100"
    small = megatron.read_distributed(folder)
    parts = [f"decoder.layers.mlp.linear_fc1._extra_state/shard_{i}.0_" for i in range(6)]
    assert [small.pop(f"{parts[i]}2.1") for i in range(2)] == [["of 1"], ["of 5"]]
    assert small.keys() == full.keys() - {f"{part}6.1" for part in parts}
    for name, value in small.items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(value, full[name][[1, 5]] if ".layers." in f".{name}" else full[name]), name
    assert small["rng_state/shard_0.0_1.1"] == full["rng_state/shard_0.0_1.1"]
    common = small["common_state/shard_0_1"][0] if embedded else megatron.load(folder / "common.pt")
    arguments = common["args"]
    assert (arguments.num_layers, arguments.moe_layer_freq) == (2, [0, 1])
    assert arguments.attention_backend is megatron.AttnBackend.auto and common["iteration"] == 100
    assert (folder / "metadata.json").is_file() and not (folder / "integrity.json").exists()


def test_the_optimizer_in_buckets_is_left_out(tmp_path):
    job = megatron.Job(layers=4)
    job.whole["optimizer.distributed.dp_group_idx_0.gbuf_idx_0.exp_avg"] = torch.zeros(4)
    job.write_distributed(tmp_path / "run")
    made = plain.make_plain(str(tmp_path / "run"), tmp_path / "small", PlainOrder())
    assert "optimizer.distributed.dp_group_idx_0.gbuf_idx_0.exp_avg" in made["dropped"]
    assert any("--no-load-optim" in warning for warning in made["warnings"])
