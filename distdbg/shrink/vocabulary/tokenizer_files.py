"""A tokenizer's files, as the tokenizers library and transformers write them, and what they say of single tokens."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from distdbg.errors import EvidenceUnreadable

TOKENIZER = "tokenizer.json"
SETTINGS = "tokenizer_config.json"
#: files that name tokens by their text
_NAMING = (SETTINGS, "special_tokens_map.json", "processor_config.json", "preprocessor_config.json",
           "video_preprocessor_config.json", "chat_template.json")  # fmt: skip
#: configs of the model that name tokens by their ids, besides config.json
WITH_IDS = ("generation_config.json", "processor_config.json", "preprocessor_config.json",
            "video_preprocessor_config.json")  # fmt: skip
#: JSON that says which token has which id, for tokenizers of other kinds
BY_ID = ("vocab.json", "vocab.txt", "merges.txt", "added_tokens.json")
#: what other tokenizer libraries read: it holds the whole vocabulary and cannot be written without them
_OTHER_FORMS = (".model", ".spm", ".bpe", ".tiktoken", "tekken.json")


def is_tokenizer_file(name: str) -> bool:
    """Whether it is one of the files that say what a tokenizer does, or name its tokens."""
    names = (TOKENIZER, *_NAMING, *WITH_IDS, *BY_ID)
    return name in names or name.endswith((*_OTHER_FORMS, ".jinja"))


def is_other_form(name: str) -> bool:
    return name.endswith(_OTHER_FORMS)


def names_tokens(name: str) -> bool:
    """Whether it is one of a tokenizer, and not of what names a few tokens only."""
    return is_other_form(name) or name in (TOKENIZER, SETTINGS, *BY_ID)


@dataclass(frozen=True)
class TokenizerFiles:
    """Small files by name; `rules` is tokenizer.json."""

    files: Mapping[str, str]
    rules: dict[str, Any]

    @property
    def kind(self) -> str:
        return str(self.rules["model"].get("type", ""))

    def vocabulary(self) -> dict[str, int]:
        """Token -> id, of the model and of the tokens that were added to it."""
        vocabulary = self.rules["model"]["vocab"]
        if isinstance(vocabulary, list):
            vocabulary = {token: at for at, (token, _) in enumerate(vocabulary)}
        return {**vocabulary, **{one["content"]: one["id"] for one in self.rules.get("added_tokens", ())}}

    def added(self) -> list[str]:
        return [one["content"] for one in self.rules.get("added_tokens", ())]

    def special(self) -> list[str]:
        return [one["content"] for one in self.rules.get("added_tokens", ()) if one.get("special")]

    def named(self) -> set[str]:
        """Tokens with a role: the settings, the processor, the template or the tokenizer's own rules name them."""
        vocabulary, added = self.vocabulary(), self.added()
        values = [json_of(self.files, name) for name in _NAMING]
        said = {text for value in values for text in texts(value)}
        said |= {text for key in ("post_processor", "padding") for text in texts(self.rules.get(key))}
        model = self.rules["model"]
        said |= {str(model.get("unk_token"))}
        if type(model.get("unk_id")) is int:
            said.add(model["vocab"][model["unk_id"]][0])
        templates = [text for name, text in self.files.items() if name.endswith(".jinja")]
        templates += [text for text in said if "{%" in text or "{{" in text]
        said |= {token for token in added if any(token in template for template in templates)}
        return said & vocabulary.keys()


def open_tokenizer(files: Mapping[str, str]) -> TokenizerFiles | None:
    """None where there is no tokenizer.json. Raises EvidenceUnreadable where it is none."""
    if TOKENIZER not in files:
        return None
    rules = json_of(files, TOKENIZER)
    try:
        tokenizer = TokenizerFiles(files, rules)
        sorted(tokenizer.vocabulary().values())
        tokenizer.named()
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        raise EvidenceUnreadable(
            f"{TOKENIZER} is not a tokenizer's: its vocabulary cannot be read", "Fetch it again."
        ) from None
    return tokenizer


def json_of(files: Mapping[str, str], name: str) -> Any:
    if name not in files:
        return {}
    try:
        return json.loads(files[name])
    except (ValueError, RecursionError):
        raise EvidenceUnreadable(f"{name} beside the config is not JSON", "Fetch it again.") from None


def texts(value: Any) -> Iterator[str]:
    """Every string in it, but for the list of all added tokens."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            if key != "added_tokens_decoder":
                yield from texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from texts(inner)
