"""A peak before the run: by kind, sharded by hand; and against a real step where that is cheap."""

import json
import re
import subprocess
import sys

import pytest

from distdbg.shrink.estimate.estimating import CUBLAS, WORKSPACES, EstimateRequest, estimate, track

M = 1 << 20
STEP = {
    "forward and backward": {"parameters": 100 * M, "gradients": 0, "optimizer state": 200 * M, "activations": 500 * M},
    "optimizer": {"parameters": 100 * M, "gradients": 100 * M, "optimizer state": 300 * M, "activations": 0},
    "within layers": {"parameters": 100 * M, "gradients": 0, "optimizer state": 200 * M, "activations": 500 * M},
    "outside layers": {"parameters": 100 * M, "gradients": 0, "optimizer state": 200 * M, "activations": 400 * M},
    "gradients": 100 * M, "parameters": 100 * M, "layers": [20 * M] * 4, "outside": 20 * M,
}  # fmt: skip


def test_ddp_adds_its_buckets_and_full_sharding_takes_all_but_what_is_gathered():
    alone = estimate(STEP, 1, "none")
    assert alone.total == 800 * M + CUBLAS and alone.kinds[WORKSPACES] == CUBLAS == 64 * M
    ddp = estimate(STEP, 8, "none")
    assert ddp.kinds["buckets of DDP"] == 100 * M and ddp.total == 900 * M + CUBLAS
    full = estimate(STEP, 4, "full")
    assert full.kinds["parameters"] == 25 * M and full.kinds["optimizer state"] == 50 * M
    assert full.kinds["gathered parameters"] == (20 + 2 * 20) * M and full.kinds["activations"] == 500 * M
    assert estimate(STEP, 4, "grad").kinds["gathered parameters"] == 100 * M


def test_at_the_end_of_the_backward_what_is_in_no_layer_has_its_gradients_whole():
    """An embedding and a head of many words, under few layers and short sequences; the last layer is being reduced."""
    kinds = {"parameters": 100 * M, "gradients": 50 * M, "optimizer state": 200 * M, "activations": M}
    moments = dict.fromkeys(("forward and backward", "within layers", "outside layers"), kinds)
    step = {**STEP, **moments, "layers": [5 * M] * 4, "outside": 80 * M}
    found = estimate(step, 4, "full")
    assert found.kinds["gradients before reduction"] == (80 + 5) * M and found.kinds["gathered parameters"] == 80 * M
    assert found.kinds["gradients"] == (100 - 80) // 4 * M and found.total == (25 + 50 + 5 + 80 + 80 + 5) * M + CUBLAS
    assert found.when == "forward and backward"


def test_at_the_loss_one_layer_is_gathered_and_none_has_gradients():
    """Logits of many words: nothing that a layer has in its backward stands beside them."""
    step = {**STEP, "outside layers": {**STEP["outside layers"], "activations": 900 * M, "gradients": 30 * M}}
    found = estimate(step, 4, "full")
    assert found.kinds["gathered parameters"] == (20 + 20) * M and found.kinds["activations"] == 900 * M
    assert found.kinds["gradients before reduction"] == 20 * M  # of what is in no layer: whole up to the end
    assert found.kinds["gradients"] == -(-10 * M // 4)


def test_the_peak_is_in_the_part_that_needs_most():
    small = {**STEP, "forward and backward": {**STEP["forward and backward"], "activations": M}}
    found = estimate(small, 1, "none")
    assert found.when == "optimizer" and found.total == 500 * M + CUBLAS


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 4, "hidden_size": 256,
              "intermediate_size": 700, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 8000,
              "max_position_embeddings": 512}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    return folder


REAL = """
import ctypes, sys, torch
from pathlib import Path
from transformers import AutoConfig, AutoModelForCausalLM
ctypes.CDLL("libc.so.6").mallopt(-3, 64 << 10)
torch.set_num_threads(1)
def status(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) << 10
def train(config):
    model = AutoModelForCausalLM.from_config(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    ids = torch.zeros(8, 256, dtype=torch.long)
    for _ in range(2):
        model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
config = AutoConfig.from_pretrained(sys.argv[1])
small = {"num_hidden_layers": 1, "hidden_size": 16, "intermediate_size": 16, "vocab_size": 16}
train(type(config)(**{**config.to_dict(), **small}))  # what is loaded once is no model's
Path("/proc/self/clear_refs").write_text("5")
before = status("VmRSS")
train(config)
print(status("VmHWM") - before)
"""


@pytest.mark.slow
def test_an_estimate_is_near_what_a_real_step_takes(model, in_process):
    said = estimate(track(str(model), EstimateRequest(8, 256)), 1, "none").total - CUBLAS  # a CPU has none
    done = subprocess.run([sys.executable, "-c", REAL, str(model)], capture_output=True, text=True, check=True)
    assert abs(said / int(done.stdout) - 1) < 0.10, (said, done.stdout)


def saved(folder, words, architecture, **values):
    from transformers import AutoConfig

    AutoConfig.for_model(words, architectures=[architecture], **values).save_pretrained(folder)
    return str(folder)


SMALL = {"num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4,
         "vocab_size": 500}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["fp32", "amp"])
def test_experts_are_tracked_in_single_precision(tmp_path, dtype, in_process):
    """The shape of torch's grouped product is only known for bfloat16."""
    folder = saved(tmp_path, "mixtral", "MixtralForCausalLM", num_local_experts=4, num_key_value_heads=2, **SMALL)
    step = track(folder, EstimateRequest(2, 32, dtype=dtype))
    experts = 4 * 3 * 64 * 128 * 4
    assert len(step["layers"]) == 2 and experts < step["layers"][0] < 1.5 * experts
    assert step["gradients"] == step["parameters"] and step["forward and backward"]["activations"] > 0


@pytest.mark.slow
def test_a_class_is_the_label_of_a_sequence(tmp_path, in_process):
    folder = saved(tmp_path, "bert", "BertForSequenceClassification", **SMALL)
    assert track(folder, EstimateRequest(2, 32))["gradients"] > 0


@pytest.mark.slow
def test_a_model_that_takes_images_too_is_tracked_with_text_and_says_so(tmp_path, distdbg):
    """Its vision tower draws its weights anew until they lie within bounds, which nobody can see here."""
    vision = {"num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 2,
              "image_size": 56, "patch_size": 14}  # fmt: skip
    text = {**SMALL, "head_dim": 16, "max_position_embeddings": 64}
    folder = saved(tmp_path, "gemma3", "Gemma3ForConditionalGeneration", text_config=text, vision_config=vision)
    done = distdbg("memory", "estimate", folder, "--seq", "32")
    assert done.code == 0 and "computed with tokens alone: image input takes more" in done.out, done
    long = distdbg("memory", "estimate", folder, "--seq", "128")
    assert long.code == 6 and "the model knows 64 positions" in long.err, long


CODE = """
from transformers import LlamaConfig, LlamaForCausalLM

class Config(LlamaConfig):
    model_type = "our_own"

class Model(LlamaForCausalLM):
    config_class = Config
"""


@pytest.mark.slow
def test_a_models_own_code_runs_where_it_is_trusted_and_is_named_where_not(tmp_path, distdbg):
    own = {"model_type": "our_own", "architectures": ["Model"], **SMALL,
           "auto_map": {"AutoConfig": "ours.Config", "AutoModelForCausalLM": "ours.Model"}}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(own))
    (tmp_path / "ours.py").write_text(CODE)
    trusted = distdbg("memory", "estimate", tmp_path, "--seq", "32", "--trust-remote-code")
    assert trusted.code == 0 and "at the peak of a rank" in trusted.out, trusted
    refused = distdbg("memory", "estimate", tmp_path, "--seq", "32")
    assert refused.code == 6 and "brings its own code" in refused.err and "--trust-remote-code" in refused.err, refused


@pytest.mark.slow
def test_a_config_that_is_none_is_named_by_its_path(tmp_path, distdbg):
    (tmp_path / "config.json").write_text("{")
    done = distdbg("memory", "estimate", tmp_path)
    assert done.code == 5 and f"{tmp_path}: config.json is not JSON" in done.err, done


@pytest.mark.slow
def test_a_loss_that_cannot_be_computed_is_refused_in_a_line(tmp_path, distdbg):
    folder = saved(tmp_path, "bert", "BertForMultipleChoice", **SMALL)
    done = distdbg("memory", "estimate", folder, "--seq", "32")
    assert done.code == 6 and "BertForMultipleChoice cannot compute a loss so: " in done.err, done
    assert "Traceback" not in done.err and "train.py:make" in done.err


@pytest.mark.slow
def test_the_command_says_kinds_margin_and_what_fits(model, distdbg, tmp_path, in_process):
    config = {**json.loads((model / "config.json").read_text()), "num_hidden_layers": 2}
    (tmp_path / "config.json").write_text(json.dumps(config))
    model = tmp_path
    done = distdbg("memory", "estimate", model, "--nproc", "8", "--fsdp", "full", "--seq", "256", "--card", "220MiB")
    assert done.code == 0, done
    assert "at the peak of a rank" in done.out and "give or take 10%" in done.out and "not in it: CUDA" in done.out
    assert "gathered parameters" in done.out and "220MiB, margin included, has room for one of" in done.out
    batch = int(re.search(r"batch +(\d+) sequences of 256 tokens", done.out)[1])
    layers = int(re.search(r"layers +(\d+) layers .*; it has 2", done.out)[1])
    assert "512 tokens in a batch of 1: all that the model knows (512)" in done.out
    assert estimate(track(str(model), EstimateRequest(batch, 256)), 8, "full").total * 1.1 <= 220 * M
    assert batch >= 2 and 2 < layers <= 4
    long = distdbg("memory", "estimate", model, "--seq", "4096")
    assert long.code == 6 and "the model knows 512 positions, and 4096 are asked for" in long.err, long


@pytest.mark.slow
def test_dropout_keeps_what_it_keeps_on_a_gpu(tmp_path, in_process):
    """A mask of a byte an element; fused attention has no matrix of weights, with dropout neither."""
    from transformers import GPT2Config

    sizes = {"n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 500, "n_positions": 512}
    kept = {}
    for p in (0.0, 0.1):
        config = GPT2Config(architectures=["GPT2LMHeadModel"], resid_pdrop=p, embd_pdrop=p, attn_pdrop=p, **sizes)
        config.save_pretrained(tmp_path)
        kept[p] = track(str(tmp_path), EstimateRequest(4, 512))["forward and backward"]["activations"]
    elements = 4 * 512 * 64
    places = 1 + 2 * 2  # behind the embeddings, and behind the attention and the MLP of each layer
    assert places * elements <= kept[0.1] - kept[0.0] <= places * elements * (1 + 4)  # the mask, and its output at most


@pytest.mark.slow
def test_autocast_keeps_what_it_keeps_on_a_gpu(tmp_path, in_process):
    """There a power is computed in fp32, and with it all of GPT-2's activation function."""
    from transformers import GPT2Config

    kept = {}
    for function in ("gelu_new", "relu"):
        config = GPT2Config(architectures=["GPT2LMHeadModel"], n_layer=2, n_embd=64, n_head=4, vocab_size=500,
                            n_positions=512, activation_function=function)  # fmt: skip
        config.save_pretrained(tmp_path)
        kept[function] = track(str(tmp_path), EstimateRequest(4, 512, dtype="amp"))["forward and backward"][
            "activations"
        ]
    elements = 2 * 4 * 512 * 4 * 64
    assert kept["gelu_new"] - kept["relu"] >= 3 * 4 * elements
