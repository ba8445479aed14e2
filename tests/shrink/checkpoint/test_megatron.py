"""Megatron's own folders: each rank's file keeps its part of the kept layers, dealt to the stages again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")

from distdbg.errors import EvidenceUnreadable, Refused
from distdbg.shrink.checkpoint import plain
from distdbg.shrink.checkpoint.plain_names import PlainOrder
from tests.shrink import megatron_checkpoints as megatron

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("in_process")]


def shrunk(job, tmp_path, keep, source="run", **options):
    job.write(tmp_path / "run")
    return plain.make_plain(str(tmp_path / source), tmp_path / "small", PlainOrder(keep=keep, **options))


def held(folder: Path, rank: int, stages: int, virtual: int = 1) -> dict:
    """The model of a tensor rank: every chunk's tensors with the layers' numbers in the model, as Megatron counts."""
    found: dict = {}
    first = 0
    files = [megatron.load(folder / (f"mp_rank_{rank:02d}" + f"_{p:03d}" * (stages > 1)) / "model_optim_rng.pt")
             for p in range(stages)]  # fmt: skip
    for v in range(virtual):
        for file in files:
            chunk = file["model" if virtual == 1 else f"model{v}"]
            layers = {int(name.split(".")[2]) for name in chunk if name.startswith("decoder.layers.")}
            assert layers == set(range(len(layers))) and layers
            for name, value in chunk.items():
                parts = name.split(".")
                if parts[1] == "layers":
                    parts[2] = str(int(parts[2]) + first)
                found[".".join(parts)] = value
            first += len(layers)
    return found


def expected(job, kept, rank, head):
    """What a model of these layers has, by the whole model's tensors."""
    names = {f"decoder.layers.{new}.{n}": f"decoder.layers.{old}.{n}"
             for new, old in enumerate(kept) for n in megatron.LAYER}  # fmt: skip
    names |= {n: n for n in ("embedding.word_embeddings.weight", "decoder.final_layernorm.weight")}
    if head:
        names["output_layer.weight"] = "embedding.word_embeddings.weight" if job.tied else "output_layer.weight"
    return {new: job.part(old, rank) for new, old in names.items()}


@pytest.mark.parametrize(
    ("job", "kept", "stages", "virtual"),
    [
        (megatron.Job(), [0, 7], 1, 1),
        (megatron.Job(pipeline=4), [0, 3, 5, 7], 4, 1),
        (megatron.Job(pipeline=4), [0, 7], 2, 1),
        (megatron.Job(pipeline=2), [1, 4, 7], 1, 1),
        (megatron.Job(pipeline=2, tied=False), [6], 1, 1),
        (megatron.Job(tensor=1, pipeline=2, virtual=2), [0, 2, 5, 7], 2, 2),
        (megatron.Job(tensor=1, pipeline=2, virtual=2), [2, 5], 2, 1),
        (megatron.Job(layers=6, pipeline=2, stage_layers=[2, 4]), [1, 2, 3, 4], 2, 1),
    ],
    ids=["tensor ranks", "each stage its own", "fewer stages", "one stage", "one layer, untied", "virtual stages",
         "no virtual stages", "uneven before"],
)  # fmt: skip
def test_each_rank_holds_its_part(tmp_path, job, kept, stages, virtual):
    made = shrunk(job, tmp_path, ",".join(map(str, kept)))
    assert made["verified"]["weights"] == "pass" and made["stacks"][0]["kept"] == kept
    folder = tmp_path / "small" / "iter_0000100"
    assert (tmp_path / "small" / "latest_checkpointed_iteration.txt").read_text() == "100"
    assert len(list(folder.iterdir())) == job.tensor * stages
    for rank in range(job.tensor):
        found = held(folder, rank, stages, virtual)
        tensors = {name: value for name, value in found.items() if value is not None}
        wanted = expected(job, kept, rank, head=not job.tied or stages > 1)
        assert tensors.keys() == wanted.keys()
        assert all(torch.equal(tensors[name], wanted[name]) for name in wanted)
        assert sum(name.endswith("_extra_state") for name in found) == len(kept)
    first = megatron.load(next(folder.glob("*00*/*.pt")))
    arguments = first["args"]
    assert (arguments.num_layers, arguments.encoder_num_layers) == (len(kept),) * 2
    assert arguments.pipeline_model_parallel_size == arguments.transformer_pipeline_model_parallel_size == stages
    assert arguments.virtual_pipeline_model_parallel_size == (virtual if virtual > 1 else None)
    assert arguments.attention_backend is megatron.AttnBackend.auto and arguments.params_dtype is torch.bfloat16
    assert first["iteration"] == 100 and "optimizer" not in first and first["opt_param_scheduler"] == {"max_lr": 0.1}
    assert first["rng_state"][0]["np_rng_state"][1].tolist() == numpy.random.get_state()[1].tolist()
    assert any("--no-load-optim" in warning for warning in made["warnings"])
    fewer = stages * virtual < job.pipeline * job.virtual
    assert any("a multiple of" in warning for warning in made["warnings"]) == fewer


def test_the_folder_of_an_iteration_and_what_is_beside_the_weights(tmp_path):
    job = megatron.Job(layers=4, tensor=1)
    folder = job.write(tmp_path / "run")
    (folder / "mp_rank_00" / "distrib_optim.pt").write_bytes(b"of the optimizer")
    (folder / "tokenizer").mkdir()
    (folder / "tokenizer" / "vocab.json").write_text("{}")
    made = plain.make_plain(str(folder), tmp_path / "small", PlainOrder(2, "last"))
    assert held(tmp_path / "small", 0, 1).keys() == held(folder, 0, 1).keys() - {
        name for name in held(folder, 0, 1) if name.startswith(("decoder.layers.2.", "decoder.layers.3."))
    }
    assert (tmp_path / "small" / "tokenizer" / "vocab.json").is_file()
    assert "distrib_optim.pt" in made["dropped"] and "optimizer" in made["dropped"]
    assert made["renamed"]["mp_rank_00/decoder.layers.3.mlp.linear_fc1.weight"].endswith(
        "decoder.layers.1.mlp.linear_fc1.weight"
    )
    assert json.loads((tmp_path / "small" / "shrink.json").read_text())["model_type"] == "megatron"


def test_the_nested_names_of_before(tmp_path):
    job = megatron.Job(layers=4, tensor=2, pipeline=2, legacy=True)
    made = shrunk(job, tmp_path, "3")
    assert made["stacks"][0]["path"] == "language_model.encoder.layers"
    for rank in range(2):
        small = megatron.load(tmp_path / "small" / "iter_0000100" / f"mp_rank_0{rank}" / "model_optim_rng.pt")["model"]
        assert small.keys() == {"language_model"} and small["language_model"].keys() == {"encoder", "embedding"}
        found = small["language_model"]["encoder"]["layers.0.mlp.linear_fc2.weight"]
        assert torch.equal(found, job.part("decoder.layers.3.mlp.linear_fc2.weight", rank))


def test_what_is_said_of_single_layers_follows(tmp_path):
    hybrid = "M-|M*/MM"
    said = {"moe_layer_freq": 2, "linear_attention_freq": [1, 1, 0, 1], "window_attn_skip_freq": 2, "no_rope_freq": 4,
            "hybrid_layer_pattern": hybrid, "num_layers_in_first_pipeline_stage": 3}  # fmt: skip
    shrunk(megatron.Job(layers=4, tensor=1, arguments=said), tmp_path, "0,2,3")
    after = megatron.load(tmp_path / "small" / "iter_0000100" / "mp_rank_00" / "model_optim_rng.pt")["args"]
    assert (after.moe_layer_freq, after.linear_attention_freq) == ([1, 1, 0], [1, 0, 1])
    assert (after.window_attn_skip_freq, after.no_rope_freq) == ([1, 1, 0], [0, 0, 1])
    assert (after.hybrid_layer_pattern, after.num_layers_in_first_pipeline_stage) == ("MM*/MM", None)


def test_experts_have_a_number_of_their_own(tmp_path):
    """`mp_rank_00_001` is an expert rank where the arguments say one stage and two of them."""
    for expert in range(2):
        job = megatron.Job(layers=4, tensor=1, arguments={"expert_model_parallel_size": 2})
        folder = job.write(tmp_path / f"of {expert}")
        (tmp_path / "run" / "iter_0000100").mkdir(parents=True, exist_ok=True)
        (folder / "mp_rank_00").rename(tmp_path / "run" / "iter_0000100" / f"mp_rank_00_00{expert}")
    plain.make_plain(str(tmp_path / "run" / "iter_0000100"), tmp_path / "small", PlainOrder(keep="3"))
    files = sorted(p.name for p in (tmp_path / "small").glob("mp_rank*"))
    assert files == ["mp_rank_00_000", "mp_rank_00_001"]
    small = megatron.load(tmp_path / "small" / files[1] / "model_optim_rng.pt")
    assert torch.equal(small["model"]["decoder.layers.0.mlp.linear_fc1.weight"],
                       job.whole["decoder.layers.3.mlp.linear_fc1.weight"])  # fmt: skip


def test_what_is_not_whole_is_refused(tmp_path):
    folder = megatron.Job(layers=4, pipeline=2).write(tmp_path / "run")
    (folder / "mp_rank_01_000").rename(tmp_path / "away")
    with pytest.raises(EvidenceUnreadable, match="no shard of tensor rank 1, stage 0"):
        plain.make_plain(str(tmp_path / "run"), tmp_path / "small", PlainOrder())
    (tmp_path / "run" / "latest_checkpointed_iteration.txt").write_text("200")
    with pytest.raises(EvidenceUnreadable, match="iter_0000200"):
        plain.make_plain(str(tmp_path / "run"), tmp_path / "small", PlainOrder())
    told = megatron.Job(layers=4, tensor=1, arguments={"num_layers": 6})
    with pytest.raises(EvidenceUnreadable, match="say 6 layers"):
        shrunk(told, tmp_path / "other", "0")
    assert not list(tmp_path.rglob("small")) and not list(tmp_path.rglob(".small*"))


def test_two_stacks_in_several_stages_are_refused(tmp_path):
    job = megatron.Job(layers=4, tensor=1, pipeline=2)
    folder = job.write(tmp_path / "run")
    for file in folder.rglob("*.pt"):
        whole = megatron.load(file)
        whole["model"] |= {n.replace("decoder", "encoder"): v for n, v in whole["model"].items()}
        with megatron.importable():
            torch.save(whole, file)
    with pytest.raises(Refused, match="two stacks"):
        plain.make_plain(str(tmp_path / "run"), tmp_path / "small", PlainOrder(keep="0,1"))


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
