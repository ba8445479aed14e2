"""A small model with the structures of newer types of transformers, each switched on by a field of its config."""

from __future__ import annotations

import math
from pathlib import Path

import torch
import transformers
from torch import nn
from transformers.modeling_outputs import CausalLMOutput


class OwnConfig(transformers.PretrainedConfig):
    """pattern: kinds of layers, repeated. sources: the layer that each layer takes its states from. adapters: how many
    layers have one. cycles: how often the model goes through its layers. placed: scales follow from a layer's place
    (`unused`: the number is there and scales nothing).
    by_depth: a scale follows from the number of layers (`layer`: it is kept in each layer; `config`: it is computed in
    each pass). stores: the last layer of each kind is marked, without an
    effect. needs_attention: the default forward raises if no layer is of the kind `attention`."""

    model_type = "own_layers"

    def __init__(
        self, vocab_size=64, hidden_size=16, num_hidden_layers=6, pattern=None, sources=None, adapters=0, cycles=1,
        placed=False, by_depth=None, stores=False, needs_attention=False, use_cache=True, **others
    ):  # fmt: skip
        self.vocab_size, self.hidden_size, self.num_hidden_layers = vocab_size, hidden_size, num_hidden_layers
        self.pattern, self.sources, self.adapters, self.cycles = pattern, sources, adapters, cycles
        self.placed, self.by_depth, self.stores = placed, by_depth, stores
        self.needs_attention, self.use_cache = needs_attention, use_cache
        super().__init__(**others)

    def kind(self, layer: int) -> str:
        return self.pattern[layer % len(self.pattern)] if self.pattern else "attention"


class Attention(nn.Linear):
    pass


class Recurrent(nn.Linear):
    pass


class OwnLayer(nn.Module):
    def __init__(self, config: OwnConfig, layer: int) -> None:
        super().__init__()
        size, kind = config.hidden_size, config.kind(layer)
        self.layer_idx = layer
        self.norm, self.up, self.down = nn.LayerNorm(size), nn.Linear(size, 2 * size), nn.Linear(2 * size, size)
        self.mixer = {"attention": Attention, "recurrent": Recurrent}[kind](size, size)
        self.reuses = bool(config.sources) and config.sources[layer] != layer
        self.residual_index = 2 * (layer + 1) if config.placed else None
        self.config = config
        self.scale = 1 / math.sqrt(2 * config.num_hidden_layers) if config.by_depth == "layer" else 1.0
        self.stores = config.stores and kind not in map(config.kind, range(layer + 1, config.num_hidden_layers))
        if config.adapters and (layer + 1) % max(config.num_hidden_layers // config.adapters, 1) == 0:
            self.adapter = nn.Linear(size, size)

    def forward(self, hidden_states, states):
        normed = self.norm(hidden_states)
        states[self.layer_idx] = normed
        source = self.config.sources[self.layer_idx] if self.config.sources else self.layer_idx
        made = self.down(torch.relu(self.up(states[source]))) + self.mixer(normed)
        if hasattr(self, "adapter"):
            made = self.adapter(made)
        if self.residual_index is None or self.config.placed == "unused":
            scale = 1 / self.config.num_hidden_layers if self.config.by_depth == "config" else self.scale
            return hidden_states + scale * made
        return hidden_states * math.sqrt(1 - 1 / self.residual_index) + made / math.sqrt(self.residual_index)


class OwnForCausalLM(transformers.PreTrainedModel, transformers.GenerationMixin):
    config_class = OwnConfig
    base_model_prefix = ""

    def __init__(self, config: OwnConfig) -> None:
        super().__init__(config)
        if config.sources and len(config.sources) != config.num_hidden_layers:
            raise ValueError("sources must have an entry for each layer")
        if config.sources and any(source > layer for layer, source in enumerate(config.sources)):
            raise ValueError("a layer takes its states from an earlier one")
        self.embed = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(OwnLayer(config, layer) for layer in range(config.num_hidden_layers))
        self.head = nn.Linear(config.hidden_size, config.vocab_size)
        self.post_init()

    def _init_weights(self, module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.3)

    def get_input_embeddings(self):
        return self.embed

    def forward(self, input_ids, attention_mask=None, past_key_values=None, use_cache=None, **_kwargs):
        use_cache = self.config.use_cache if use_cache is None else use_cache
        if use_cache and self.config.needs_attention and not any(isinstance(x.mixer, Attention) for x in self.layers):
            raise ValueError("the cache has no attention layer")
        hidden_states = self.embed(input_ids)
        for _ in range(self.config.cycles):
            states = {}
            for layer in self.layers:
                hidden_states = layer(hidden_states, states)
        return CausalLMOutput(logits=self.head(hidden_states))


def register() -> None:
    transformers.AutoConfig.register(OwnConfig.model_type, OwnConfig, exist_ok=True)
    transformers.AutoModelForCausalLM.register(OwnConfig, OwnForCausalLM, exist_ok=True)


def save(folder: Path, **fields) -> Path:
    register()
    torch.manual_seed(0)
    OwnForCausalLM(OwnConfig(**fields)).save_pretrained(folder)
    return folder
