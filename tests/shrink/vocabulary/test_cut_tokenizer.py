"""A tokenizer of each kind cut: its ids fit, texts come back, and what has a role keeps it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from distdbg.errors import EvidenceUnreadable, UsageError
from distdbg.shrink.checkpoint.source import Folder
from distdbg.shrink.tokenizer import tokenizer_of, write_tokenizer
from distdbg.shrink.vocabulary.selecting import CannotCutError, least, select
from distdbg.shrink.vocabulary.tokenizer_files import open_tokenizer
from tests.shrink.trained_tokenizers import KINDS, LINES, ROLES, save_tokenizer


def cut(folder: Path, count: int, rows: int, named: tuple[int, ...] = ()) -> tuple[Any, list[int]]:
    """(the small tokenizer, the old id of each new one)"""
    tokenizers = pytest.importorskip("tokenizers")
    source = Folder(folder)
    tokenizer = tokenizer_of(source)
    assert tokenizer is not None
    kept = select(tokenizer, count, named, rows)
    small = folder.with_name("small")
    small.mkdir()
    probe = {"narrowed": [{"axis": "vocab", "rows": kept, "from": str(rows), "to": str(count)}]}
    for name in source.files():
        (small / name).write_bytes(source.small(name) or b"")
    assert write_tokenizer(source, small, probe) == []
    return tokenizers.Tokenizer.from_file(str(small / "tokenizer.json")), kept


@pytest.mark.parametrize("kind", KINDS)
def test_texts_come_back(tmp_path: Path, kind: str) -> None:
    full = save_tokenizer(tmp_path / "full", kind)
    rows = full.get_vocab_size() + 5
    count = 300 if kind == "BPE" else full.get_vocab_size() * 3 // 4
    small, kept = cut(tmp_path / "full", count, rows)
    assert len(kept) == count == len(set(kept)) and small.get_vocab_size() == count
    assert {small.id_to_token(new): old for new, old in enumerate(kept)} == {full.id_to_token(i): i for i in kept}
    for line in LINES:
        found = small.encode(line)
        assert max(found.ids) < count and found.tokens[0] == ROLES["bos_token"]
        assert small.decode(found.ids) == full.decode(full.encode(line).ids)
    assert small.token_to_id("<|user|>") is not None and small.token_to_id("<|reserved_special_token_1|>") is None
    assert all(small.token_to_id(token) < count for token in ROLES.values())


def test_bytes_without_a_merge_are_written_as_bytes(tmp_path: Path) -> None:
    full = save_tokenizer(tmp_path / "full", "BPE")
    small, _ = cut(tmp_path / "full", 262, full.get_vocab_size())
    assert small.decode(small.encode("Grüße 你好 🙂").ids) == "Grüße 你好 🙂"


def test_ids_that_configs_name_stay_and_follow(tmp_path: Path) -> None:
    full = save_tokenizer(tmp_path / "full", "BPE")
    odd = full.token_to_id("<|reserved_special_token_1|>")
    end = full.token_to_id(ROLES["eos_token"])
    said = {"eos_token_id": [end, odd], "suppress_tokens": [0, 299, end], "max_length": end}
    (tmp_path / "full" / "generation_config.json").write_text(json.dumps(said))
    small, kept = cut(tmp_path / "full", 270, full.get_vocab_size(), (odd,))
    assert odd in kept
    found = json.loads((tmp_path / "small" / "generation_config.json").read_text())
    assert found["eos_token_id"] == [small.token_to_id(full.id_to_token(i)) for i in (end, odd)]
    assert found["max_length"] == end and len(found["suppress_tokens"]) == 2  # 299 is gone


@pytest.mark.parametrize(
    "name", ["processor_config.json", "preprocessor_config.json", "video_preprocessor_config.json"]
)
def test_what_a_processor_names_stays_and_follows(tmp_path: Path, name: str) -> None:
    """Its own sizes are those of the images, and no ids."""
    full = save_tokenizer(tmp_path / "full", "BPE")
    token = "<|reserved_special_token_1|>"
    said = {"image_token": token, "image_token_id": full.token_to_id(token), "patch_size": 14, "image_seq_length": 256}
    (tmp_path / "full" / name).write_text(json.dumps(said))
    small, _ = cut(tmp_path / "full", 270, full.get_vocab_size())
    found = json.loads((tmp_path / "small" / name).read_text())
    assert small.token_to_id(token) is not None
    assert found == {**said, "image_token_id": small.token_to_id(token)}


def test_the_other_forms_of_a_tokenizer(tmp_path: Path) -> None:
    """vocab.json and merges.txt say the same as tokenizer.json; a SentencePiece model cannot be written."""
    full = save_tokenizer(tmp_path / "full", "BPE")
    source = tmp_path / "full"
    for name in ("vocab.json", "merges.txt"):
        (source / name).write_text("old")
    settings = json.loads((source / "tokenizer_config.json").read_text())
    user = full.token_to_id("<|user|>")
    settings["added_tokens_decoder"] = {str(user): {"content": "<|user|>"}, str(user + 1): {"content": "<|reserved|>"}}
    (source / "tokenizer_config.json").write_text(json.dumps(settings))
    small, _ = cut(source, 280, full.get_vocab_size())
    there = tmp_path / "small"
    rules = json.loads((there / "tokenizer.json").read_text())
    assert json.loads((there / "vocab.json").read_text()) == rules["model"]["vocab"]
    assert len((there / "merges.txt").read_text().splitlines()) == len(rules["model"]["merges"]) + 1
    decoder = json.loads((there / "tokenizer_config.json").read_text())["added_tokens_decoder"]
    assert decoder == {str(small.token_to_id("<|user|>")): {"content": "<|user|>"}}


def test_what_is_left_out_is_named(tmp_path: Path) -> None:
    full = save_tokenizer(tmp_path / "full", "Unigram")
    (tmp_path / "full" / "tokenizer.model").write_bytes(b"\xff\xfe")
    source, small = Folder(tmp_path / "full"), tmp_path / "small"
    small.mkdir()
    for name in source.files():
        (small / name).write_bytes(source.small(name) or b"")
    probe: dict[str, Any] = {"axis": "vocab", "rows": list(range(60)), "from": str(full.get_vocab_size()), "to": "60"}
    tokenizer = tokenizer_of(source)
    assert tokenizer is not None
    probe["rows"] = select(tokenizer, 60, (), full.get_vocab_size())
    (warning,) = write_tokenizer(source, small, {"narrowed": [probe]})
    assert "tokenizer.model" in warning and not (small / "tokenizer.model").exists()


def test_a_slow_tokenizer_is_named(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_bytes(b"\xff")
    probe = {"narrowed": [{"axis": "vocab", "rows": [], "from": "100", "to": "50"}]}
    (warning,) = write_tokenizer(Folder(tmp_path), tmp_path, probe)
    assert "tokenizer.json" in warning and (tmp_path / "tokenizer.model").exists()


def test_too_few_tokens_are_refused(tmp_path: Path) -> None:
    full = save_tokenizer(tmp_path, "BPE")
    tokenizer = tokenizer_of(Folder(tmp_path))
    assert tokenizer is not None
    rows = full.get_vocab_size()
    need = least(tokenizer, (), rows)
    assert need == 256 + 4  # the bytes; three roles and <|user|>
    with pytest.raises(UsageError, match=f"{need} tokens must stay"):
        select(tokenizer, need - 1, (), rows)
    assert len(select(tokenizer, need, (), rows)) == need


def test_a_kind_that_is_not_known(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": {"type": "Other", "vocab": {"a": 0}}}))
    tokenizer = tokenizer_of(Folder(tmp_path))
    assert tokenizer is not None
    with pytest.raises(CannotCutError):
        select(tokenizer, 1, (), 2)


def test_a_role_of_a_token_that_is_not_there_is_refused() -> None:
    rules = {"model": {"type": "Unigram", "unk_id": 999, "vocab": [["a", -1.0]]}}
    with pytest.raises(EvidenceUnreadable):
        open_tokenizer({"tokenizer.json": json.dumps(rules)})
