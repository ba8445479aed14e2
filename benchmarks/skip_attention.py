"""CPU seconds of a step with and without --skip-attention, at 16,384 tokens and 8 layers, in one run.

    python benchmarks/skip_attention.py [--tokens 16384] [--layers 8] [--check]

`--check` fails where a step without attention takes more than a quarter of the CPU time of one with it.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
import transformers
from transformers import modeling_utils

from distdbg.worker.shrunk.skip_attention import SkipAttention
from distdbg.worker.shrunk.stacks import place_modules

LEAST = 4.0


def step(model: torch.nn.Module, ids: torch.Tensor) -> float:
    begun = time.process_time()
    model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
    model.zero_grad()
    return time.process_time() - begun


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    config = transformers.LlamaConfig(
        hidden_size=256, intermediate_size=512, num_hidden_layers=options.layers, num_attention_heads=4,
        num_key_value_heads=4, vocab_size=256, max_position_embeddings=options.tokens,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config)
    model.gradient_checkpointing_enable()
    ids = torch.randint(0, 256, (1, options.tokens))
    real = step(model, ids)
    SkipAttention("all").patch_transformers(modeling_utils)
    place_modules(model)
    skipped = min(step(model, ids), step(model, ids))
    print(f"{options.tokens} tokens, {options.layers} layers: {real:.1f} s with attention, {skipped:.1f} s without, "
          f"{real / skipped:.1f} times")  # fmt: skip
    return int(options.check and real / skipped < LEAST)


if __name__ == "__main__":
    sys.exit(main())
