"""Tokenizers of each kind, trained on a few lines, in the files that lie beside a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

LINES = [
    "hello world, the quick brown fox jumps over the lazy dog; user and assistant say hello",
    "def step(x): return {'loss': x + 1}  # 1234567890",
    "we count the words that we know, and the others we do not know",
]
ROLES = {"bos_token": "<|begin|>", "eos_token": "<|end|>", "pad_token": "<|pad|>"}
#: `<|user|>` has a role in this template only
TEMPLATE = "{% for m in messages %}<|user|>{{ m['content'] }}<|end|>{% endfor %}"
KINDS = ("BPE", "Unigram", "WordPiece")


def save_tokenizer(folder: Path, kind: str) -> Any:
    """Gives the library's tokenizer. Its last tokens are those with a role, and a reserved one."""
    import pytest

    tokenizers = pytest.importorskip("tokenizers")
    made, unknown = {"BPE": _bpe, "Unigram": _unigram, "WordPiece": _wordpiece}[kind](tokenizers)
    made.add_special_tokens([*ROLES.values(), "<|user|>", "<|reserved_special_token_1|>"])
    begin = ROLES["bos_token"]
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single=f"{begin} $A", special_tokens=[(begin, made.token_to_id(begin))]
    )
    folder.mkdir(parents=True, exist_ok=True)
    made.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", **ROLES, **unknown}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return made


def _bpe(tokenizers: Any) -> tuple[Any, dict[str, str]]:
    letters = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    return _trained(made, tokenizers.trainers.BpeTrainer, vocab_size=400, initial_alphabet=letters), {}


def _unigram(tokenizers: Any) -> tuple[Any, dict[str, str]]:
    made = tokenizers.Tokenizer(tokenizers.models.Unigram())
    made.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    made.decoder = tokenizers.decoders.Metaspace()
    options = {"vocab_size": 150, "special_tokens": ["<unk>"], "unk_token": "<unk>"}
    return _trained(made, tokenizers.trainers.UnigramTrainer, **options), {"unk_token": "<unk>"}


def _wordpiece(tokenizers: Any) -> tuple[Any, dict[str, str]]:
    made = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    made.decoder = tokenizers.decoders.WordPiece()
    trained = _trained(made, tokenizers.trainers.WordPieceTrainer, vocab_size=200, special_tokens=["[UNK]"])
    return trained, {"unk_token": "[UNK]"}


def _trained(made: Any, trainer: Any, **options: Any) -> Any:
    made.train_from_iterator(LINES * 8, trainer(show_progress=False, **options))
    return made
