"""Verify the tokenizer of a cut vocabulary: each id is the token that its row is of, and texts come back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from distdbg.shrink.verify.kept import PASS

_TEXTS = (
    "The quick brown fox jumps over the lazy dog, 1234567890 times.",
    "def step(x):\n    return {'loss': x ** 2}  # \t ok?",
    "Grüße aus Köln, déjà vu; 你好, мир! 🙂",
)
#: so many of those that stayed make a text
_TOKENS = 200
_MESSAGES = [{"role": "user", "content": "Hello there"}, {"role": "assistant", "content": "2 + 2 = 4"}]


def compare_tokenizers(full: str, small: str, kept: Sequence[int], rows: int, trust: bool) -> str:
    """`full`, `small`: folders. `kept`: the old id of each new one, of so many `rows`."""
    from transformers import AutoTokenizer

    before = AutoTokenizer.from_pretrained(full, trust_remote_code=trust, local_files_only=True)
    try:
        after = AutoTokenizer.from_pretrained(small, trust_remote_code=trust, local_files_only=True)
    except Exception as error:
        return f"fail: transformers does not load it: {type(error).__name__}: {error}"
    if problem := next(_problems(before, after, kept, rows), None):
        return f"fail: {problem}"
    texts = list(_TEXTS)
    if getattr(before, "chat_template", None):
        texts.append(before.apply_chat_template(_MESSAGES, tokenize=False))
        if after.apply_chat_template(_MESSAGES, tokenize=False) != texts[-1]:
            return "fail: its chat template writes another text"
    texts.append(before.decode([i for i in kept if i not in before.all_special_ids][:_TOKENS]))
    texts += [word for text in texts for word in text.split()]
    exact = 0
    for text in texts:
        ids = after(text)["input_ids"]
        if not all(0 <= i < len(kept) for i in ids):
            return f"fail: a text gives the id {max(ids)}, and there are {len(kept)} rows"
        same = after.decode(ids) == before.decode(before(text)["input_ids"])
        if not same and after.unk_token_id not in ids:
            return f"fail: {text!r} comes back as {after.decode(ids)!r}"
        exact += same
    rest = f"; {len(texts) - exact} have a letter that has no token any more" if exact < len(texts) else ""
    return f"{PASS}; {exact} of {len(texts)} words and texts come back{rest}"


def _problems(before: Any, after: Any, kept: Sequence[int], rows: int) -> Iterator[str]:
    there, here = before.get_vocab(), after.get_vocab()
    by_id = {i: token for token, i in there.items()}
    expected = {by_id[old]: new for new, old in enumerate(kept) if old in by_id}
    for token in here.keys() - expected.keys():
        if there.get(token, 0) < rows or here[token] < len(
            kept
        ):  # else transformers adds one that has no row in either
            yield f"{token!r} is new"
    for token, new in expected.items():
        if here.get(token) != new:
            yield f"{token!r} has the id {here.get(token)}, and its row is {new}"
    for role, token in before.special_tokens_map.items():
        if after.special_tokens_map.get(role) != token:
            yield f"{role} is {after.special_tokens_map.get(role)!r}, not {token!r}"
