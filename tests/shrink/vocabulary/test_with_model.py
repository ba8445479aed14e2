"""A vocabulary cut by the command: rows of the embedding and of the head are those of the tokens that stayed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.shrink import models
from tests.shrink.trained_tokenizers import save_tokenizer


@pytest.mark.slow
def test_rows_and_ids_of_a_checkpoint(tmp_path: Path, distdbg) -> None:
    pytest.importorskip("transformers")
    import torch
    import transformers

    full = save_tokenizer(tmp_path / "large", "BPE")
    end = full.token_to_id("<|end|>")
    ids = {"bos_token_id": full.token_to_id("<|begin|>"), "eos_token_id": [end, 1], "pad_token_id": end + 1}
    source = models.llama(tmp_path / "large", vocab_size=full.get_vocab_size() + 9, **ids)
    done = distdbg("shrink-model", source, tmp_path / "small", "--vocab", "300")
    assert done.code == 0, done
    assert "the tokenizer has the rows' ids" in done.out and "300 of" in done.err
    load = transformers.AutoModelForCausalLM.from_pretrained
    small, large = load(tmp_path / "small"), load(source)
    tokens = transformers.AutoTokenizer.from_pretrained(tmp_path / "small")
    for new in range(len(tokens)):
        old = full.token_to_id(tokens.convert_ids_to_tokens(new))
        assert torch.equal(small.get_input_embeddings().weight[new], large.get_input_embeddings().weight[old])
        assert torch.equal(small.lm_head.weight[new], large.lm_head.weight[old])
    config = small.config
    assert (config.vocab_size, len(tokens), config.bos_token_id) == (300, 300, tokens.bos_token_id)
    assert config.eos_token_id[0] == tokens.eos_token_id and config.pad_token_id == tokens.pad_token_id
    assert small.generation_config.eos_token_id == config.eos_token_id
    asked = tokens.apply_chat_template([{"role": "user", "content": "hello"}], return_tensors="pt", return_dict=True)
    assert small.generate(**asked, max_new_tokens=2).max() < 300


@pytest.mark.slow
def test_a_tiny_model_has_a_tiny_vocabulary(tmp_path: Path, distdbg) -> None:
    pytest.importorskip("transformers")
    save_tokenizer(tmp_path / "large", "WordPiece")
    model = models.llama(tmp_path / "large", hidden_size=128, vocab_size=2000)
    done = distdbg("shrink-model", model, tmp_path / "tiny", "--size", "tiny")
    assert done.code == 0, done
    made = json.loads((tmp_path / "tiny" / "shrink.json").read_text())
    assert next((one["axis"], one["to"]) for one in made["narrowed"]) == ("vocab", "1024")
    assert made["verified"]["tokenizer"].startswith("pass") and "generate gave" in made["verified"]["smoke_test"]
