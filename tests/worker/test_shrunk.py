"""Smaller while it runs: attention left out with its memory and gradients, layers dropped with their weights unread."""

import json

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from distdbg.worker.shrunk.keep_layers import KeepLayers
from distdbg.worker.shrunk.skip_attention import SkipAttention, parse
from distdbg.worker.shrunk.stacks import place_modules, stacks

pytestmark = pytest.mark.slow  # transformers alone takes seconds to import

SMALL = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 64,
}


def llama(layers=4, **fields):
    return transformers.LlamaConfig(num_hidden_layers=layers, **SMALL, **fields)


@pytest.fixture
def hooked(monkeypatch):
    """patch(thing): as the import hook would, undone after the test."""
    from transformers import modeling_utils

    def patch(thing):
        monkeypatch.setattr(modeling_utils.AttentionInterface, "get_interface",
                            modeling_utils.AttentionInterface.get_interface)  # fmt: skip
        monkeypatch.setattr(modeling_utils.PreTrainedModel, "post_init", modeling_utils.PreTrainedModel.post_init)
        thing.patch_transformers(modeling_utils)
        return thing

    return patch


def saved_bytes(model, ids):
    """What autograd keeps between forward and backward, each storage once, parameters left out."""
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = model(input_ids=ids, labels=ids, use_cache=False).loss
    loss.backward()
    return sum(kept.values())


@pytest.mark.parametrize(("text", "skipped"), [("all", {0, 1, 2, 3}), ("all-but-last", {0, 1, 2}), ("1", {0})])
def test_which_layers(hooked, text, skipped):
    skip = hooked(SkipAttention(text))
    model = transformers.LlamaForCausalLM(llama())
    assert place_modules(model) == 4
    ids = torch.randint(0, 64, (2, 16))
    model(input_ids=ids, labels=ids).loss.backward()
    assert (skip.skipped, skip.kept, skip.unplaced) == (skipped, {0, 1, 2, 3} - skipped, 0)
    assert all(p.grad is not None for p in model.parameters())
    assert torch.count_nonzero(model.model.layers[3].self_attn.q_proj.weight.grad) == 0 or 3 not in skipped


@pytest.mark.parametrize("reentrant", [None, True, False], ids=["plain", "reentrant", "not-reentrant"])
def test_memory_is_that_of_fused_attention(hooked, reentrant):
    """With and without checkpointing of either kind."""
    model = transformers.LlamaForCausalLM(llama(attn_implementation="sdpa")).train()
    if reentrant is not None:
        model.gradient_checkpointing_enable({"use_reentrant": reentrant})
        model.enable_input_require_grads()
    ids = torch.randint(0, 64, (2, 256))
    real = saved_bytes(model, ids)
    skip = hooked(SkipAttention("all"))
    place_modules(model)
    model.zero_grad()
    assert saved_bytes(model, ids) == pytest.approx(real, rel=0.05)
    assert skip.skipped == {0, 1, 2, 3} and all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize("loaded", [False, True])
def test_a_compiled_step_is_the_plain_one(hooked, loaded):
    """In one graph: what is put in place is traced with the model; with layers dropped, and with all of them loaded."""
    hooked(KeepLayers(3, loaded=loaded))
    skip = hooked(SkipAttention("all-but-last" if not loaded else "1"))
    model = transformers.LlamaForCausalLM(llama(attn_implementation="sdpa"))
    place_modules(model)
    ids = torch.randint(0, 64, (2, 16))
    plain = model(input_ids=ids, labels=ids, use_cache=False).loss
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    loss = compiled(input_ids=ids, labels=ids, use_cache=False).loss
    loss.backward()
    assert torch.allclose(loss, plain) and all(p.grad is not None for p in model.parameters())
    assert skip.skipped == ({0} if loaded else {0, 1})


def test_plain_modules_call_torchs_own(monkeypatch):
    import torch.nn.functional as functional

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.project = torch.nn.Linear(8, 24)

        def forward(this, batch):
            query, key, value = (part[:, None] for part in this.project(batch).chunk(3, -1))
            return batch + functional.scaled_dot_product_attention(query, key, value, is_causal=True)[:, 0]

    monkeypatch.setattr(functional, "scaled_dot_product_attention", functional.scaled_dot_product_attention)
    skip = SkipAttention("1")
    skip.patch_functional(functional)
    layers = torch.nn.ModuleList([Block(), Block()])
    model = torch.nn.ModuleDict({"h": layers})
    batch = torch.randn(2, 5, 8)
    assert not torch.equal(layers[0](batch), batch), "nothing is placed yet"
    place_modules(model)
    assert torch.equal(layers[0](batch), batch)
    assert not torch.equal(layers[1](batch), batch)
    layers[0](batch).sum().backward()
    assert torch.count_nonzero(layers[0].project.weight.grad) == 0


def test_the_first_layers_are_kept_and_what_is_written_can_be_read(hooked, tmp_path):
    whole = transformers.LlamaForCausalLM(llama(6))
    whole.save_pretrained(tmp_path / "whole")
    keep = hooked(KeepLayers(2))
    model = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "whole")
    assert keep.kept == {"LlamaModel.layers": (2, 6)}
    assert [len(stack) for _, stack in stacks(model)] == [2]
    assert torch.equal(model.model.layers[1].mlp.up_proj.weight, whole.model.layers[1].mlp.up_proj.weight)
    model.save_pretrained(tmp_path / "small")
    again = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "small")
    assert again.config.num_hidden_layers == 2
    assert model.generate(torch.tensor([[1, 2]]), min_new_tokens=3, max_new_tokens=3, do_sample=False).shape == (1, 5)


def test_a_prefix_is_made_longer_for_a_kind_that_comes_later(hooked):
    config = transformers.Qwen3MoeConfig(num_hidden_layers=6, moe_intermediate_size=16, num_experts=4, head_dim=16,
                                         num_experts_per_tok=2, mlp_only_layers=[0, 1], **SMALL)  # fmt: skip
    keep = hooked(KeepLayers(1))
    model = transformers.Qwen3MoeForCausalLM(config)
    assert keep.kept == {"Qwen3MoeModel.layers": (3, 6)}
    ids = torch.randint(0, 64, (1, 8))
    model(input_ids=ids, labels=ids).loss.backward()


@pytest.mark.parametrize("text", ["some", "", "all but last"])
def test_what_is_not_understood(text):
    with pytest.raises(ValueError):
        parse(text)


PROGRAM = """
import sys, torch, torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from transformers import LlamaConfig, LlamaForCausalLM
dist.init_process_group("gloo")
model = LlamaForCausalLM(LlamaConfig(hidden_size=64, intermediate_size=128, num_attention_heads=4, num_hidden_layers=6,
                                     num_key_value_heads=2, vocab_size=64))
if sys.argv[1] == "fsdp":
    model.gradient_checkpointing_enable()
    for layer in model.model.layers:
        fully_shard(layer)
    fully_shard(model)
else:
    model = DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters())
ids = torch.randint(0, 64, (2, 32))
for _ in range(10):
    model(input_ids=ids, labels=ids).loss.backward()
    assert all(p.grad is not None for p in model.parameters())
    optimizer.step()
    optimizer.zero_grad()
if dist.get_rank() == 0 and sys.argv[1] == "ddp":
    torch.save(model.module.state_dict(), "checkpoint.pt")
dist.destroy_process_group()
"""


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_ten_steps_of_two_ranks(distdbg, tmp_path, kind):
    (tmp_path / "train.py").write_text(PROGRAM)
    result = distdbg(
        "launch", "--nproc-per-node", "2", "--keep-layers", "3", "--skip-attention", "all-but-last", "train.py", kind
    )
    assert result.code == 0, result
    assert "THE MODEL IS MADE SMALLER (--keep-layers 3 --skip-attention all-but-last)" in result.err
    (finding,) = json.loads(result.run.report_json.read_text())["findings"]
    assert (finding["id"], finding["severity"], finding["ranks"]) == ("model-shrunk", "warning", [0, 1])
    assert "3 of 6 layers; no attention in layers 0-1, real in 2" in finding["summary"]
    assert (tmp_path / "checkpoint.pt.shrunk.txt").exists() == (kind == "ddp")


def test_a_model_that_cannot_be_covered_is_said_to_run_whole(distdbg, tmp_path):
    (tmp_path / "train.py").write_text(
        "import torch\nmodel = torch.nn.Linear(2, 2)\nmodel(torch.ones(2)).sum().backward()\n"
        "torch.optim.SGD(model.parameters()).step()\n"
    )
    result = distdbg("launch", "--keep-layers", "1", "--skip-attention", "all", "train.py")
    assert result.code == 0, result
    assert "it ran whole" in json.loads(result.run.report_json.read_text())["findings"][0]["summary"]


def test_all_ranks_can_do_it_or_the_job_does_not_start(distdbg, tmp_path):
    """On the node of rank 1 is a transformers that is made in another way."""
    other = tmp_path / "other" / "transformers"
    other.mkdir(parents=True)
    for name in ("__init__.py", "modeling_utils.py"):
        (other / name).write_text("")
    (tmp_path / "train.py").write_text(
        "import os, sys\nif os.environ['RANK'] == '1':\n    sys.path.insert(0, 'other')\n"
        "import transformers.modeling_utils, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\nopen('trains', 'w')\n"
    )
    result = distdbg("launch", "--nproc-per-node", "2", "--keep-layers", "1", "train.py")
    assert result.code == 1 and not (tmp_path / "trains").exists(), result
    assert "the model cannot be made smaller in this rank (AttributeError" in result.err


FAMILIES = {
    "llama": {},
    "gpt2": {"n_embd": 64, "n_layer": 4, "n_head": 4, "vocab_size": 64, "n_positions": 64},
    "gemma3_text": {"head_dim": 16, "sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"] * 2},
    "bloom": {"hidden_size": 64, "n_layer": 4, "n_head": 4, "vocab_size": 64},
    "t5": {"d_model": 64, "d_ff": 64, "d_kv": 16, "num_heads": 4, "num_layers": 4, "vocab_size": 64,
           "decoder_start_token_id": 0},
}  # fmt: skip


def model_of(name):
    fields = FAMILIES[name]
    if name in ("llama", "gemma3_text"):
        fields = {**SMALL, "num_hidden_layers": 4, **fields}
    config = transformers.AutoConfig.for_model(name, **fields)
    auto = transformers.AutoModelForSeq2SeqLM if name == "t5" else transformers.AutoModelForCausalLM
    torch.manual_seed(0)
    return auto.from_config(config).eval()


def generated(model, *, cached):
    ids = torch.arange(3, 11)[None]
    return model.generate(ids, max_new_tokens=8, min_new_tokens=8, do_sample=False, use_cache=cached).tolist()


@pytest.mark.parametrize("name", FAMILIES)
def test_generating_with_a_cache_is_generating_without(hooked, name):
    """Layers that only pass on leave no keys behind, and skipped attention reads none: neither confuses the cache."""
    keep = hooked(KeepLayers(2, loaded=True))
    model = model_of(name)
    assert set(keep.kept.values()) == {(2, 4)}
    assert generated(model, cached=True) == generated(model, cached=False)


@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma3_text"])
def test_generating_without_attention(hooked, name):
    skip = hooked(SkipAttention("all-but-last"))
    model = model_of(name)
    place_modules(model)
    assert generated(model, cached=True) == generated(model, cached=False)
    assert (skip.skipped, skip.kept) == ({0, 1, 2}, {3})


@pytest.mark.parametrize("checkpointing", [None, True, False])
def test_all_is_loaded_and_two_layers_run(hooked, tmp_path, checkpointing):
    whole = transformers.LlamaForCausalLM(llama(5))
    whole.save_pretrained(tmp_path / "whole")
    hooked(KeepLayers(2, loaded=True))
    model = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "whole")
    assert model.config.num_hidden_layers == 5 and model.state_dict().keys() == whole.state_dict().keys()
    if checkpointing is not None:
        model.gradient_checkpointing_enable({"use_reentrant": checkpointing})
    model.train()
    ids = torch.randint(0, 64, (2, 16))
    loss = model(input_ids=ids, labels=ids, use_cache=False).loss
    loss.backward()
    short = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "whole", num_hidden_layers=2)
    other = short(input_ids=ids, labels=ids, use_cache=False).loss
    other.backward()
    assert torch.equal(loss, other)
    assert torch.equal(model.model.layers[1].mlp.up_proj.weight.grad, short.model.layers[1].mlp.up_proj.weight.grad)
    for layer in model.model.layers[2:]:
        assert all(p.grad is not None and torch.count_nonzero(p.grad) == 0 for p in layer.parameters())


COLLECTIVES = """
import torch, torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.debug import CommDebugMode
from torch.nn.parallel import DistributedDataParallel
from transformers import LlamaConfig, LlamaForCausalLM
dist.init_process_group("gloo")
def made():
    return LlamaForCausalLM(LlamaConfig(hidden_size=64, intermediate_size=128, num_attention_heads=4,
                                        num_hidden_layers=5, num_key_value_heads=2, vocab_size=64))
ids = torch.randint(0, 64, (2, 16))
model = made()
for layer in model.model.layers:
    fully_shard(layer)
fully_shard(model)
with CommDebugMode() as seen:
    model(input_ids=ids, labels=ids).loss.backward()
print({str(k).rpartition(".")[2]: v for k, v in seen.get_comm_counts().items()}, len(model.model.layers))
model = DistributedDataParallel(made())
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
"""


def test_all_collectives_stay_with_all_layers_loaded(distdbg, tmp_path):
    """Under FSDP2 and DDP: what is gathered and reduced is what the whole model gathers and reduces."""
    (tmp_path / "train.py").write_text(COLLECTIVES)
    whole = distdbg("launch", "--nproc-per-node", "2", "train.py")
    kept = distdbg("launch", "--nproc-per-node", "2", "--keep-layers", "1", "--full-load", "train.py")
    assert whole.code == kept.code == 0, kept
    counts = [line for line in kept.out.splitlines() if "allgather" in line]
    assert counts and counts == [line for line in whole.out.splitlines() if "allgather" in line]
    assert "--keep-layers 1 --full-load" in kept.err
    (finding,) = json.loads(kept.run.report_json.read_text())["findings"]
    assert finding["summary"].endswith("LlamaModel.layers loaded all and ran 1 of 5 layers")
