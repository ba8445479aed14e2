"""Ids of tokens in a model's configs are found by their names, and only those of the vocabulary that is cut."""

from __future__ import annotations

from distdbg.shrink.vocabulary.token_ids import named_ids, renumbered

CONFIG = {
    "vocab_size": 100,
    "bos_token_id": 7,
    "eos_token_id": [8, 9],
    "pad_token_id": None,
    "image_token_index": 99,
    "hidden_size": 8,
    "num_image_tokens": 9,
    "suppress_tokens": [8, 50],
    "text_config": {"vocab_size": 100, "bos_token_id": 7},
    "codec_config": {"vocab_size": 20, "bos_token_id": 7},
    "vision_config": {"start_token_id": 8, "unset_token_id": -1, "other_token_id": 200},
}


def test_ids_that_must_stay() -> None:
    assert named_ids(CONFIG, 100) == {7, 8, 9, 99}


def test_ids_follow() -> None:
    assert renumbered(CONFIG, 100, {7: 0, 8: 1, 99: 2}) == {
        ("bos_token_id",): 0,
        ("eos_token_id",): [1],
        ("image_token_index",): 2,
        ("suppress_tokens",): [1],
        ("text_config", "bos_token_id"): 0,
        ("vision_config", "start_token_id"): 1,
    }


def test_ids_by_token() -> None:
    said = {"lang_to_id": {"<|en|>": 3, "<|de|>": 4}}
    assert renumbered(said, 100, {3: 0}) == {("lang_to_id",): {"<|en|>": 0}}
