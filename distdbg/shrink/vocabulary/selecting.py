"""Choose the tokens that stay: those with a role, what every text can be written with, then the most frequent ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from distdbg.errors import UsageError
from distdbg.shrink.vocabulary.tokenizer_files import TokenizerFiles, texts

_BYTE = re.compile(r"<0x[0-9A-F]{2}>")
#: entries without a meaning, which are there to be given one
_UNUSED = re.compile(r"\[unused\d+\]|<\|?(unused|reserved)[\w ]*\|?>|<SPECIAL_\d+>")
#: without letters no word can be written; with as many as an alphabet or two have, most can
_FIRST_LETTERS = 256
Order = Callable[[TokenizerFiles], Iterator[tuple[str, ...]]]


class CannotCutError(Exception):
    """A tokenizer of a kind whose tokens cannot be left out one by one."""


def least(tokenizer: TokenizerFiles, named: Iterable[int], rows: int) -> int:
    """The smallest vocabulary that this tokenizer works with."""
    return len(_required(tokenizer, named, rows))


def select(tokenizer: TokenizerFiles, count: int, named: Iterable[int], rows: int) -> list[int]:
    """The ids of the tokens that stay, rising. `named`: ids that configs name. `rows`: how many there are.

    Raises UsageError where more than `count` must stay, CannotCutError where the tokenizer is of another kind.
    """
    vocabulary = {token: i for token, i in tokenizer.vocabulary().items() if 0 <= i < rows}
    kept = _required(tokenizer, named, rows)
    if len(kept) > count:
        raise UsageError(
            f"--vocab {count}: {len(kept)} tokens must stay, which have a role or stand for a byte",
            f"Give {len(kept)} or more.",
        )
    added = {vocabulary[token] for token in tokenizer.added() if token in vocabulary}
    meant = {vocabulary[token] for token in tokenizer.added() if token in vocabulary and not _UNUSED.fullmatch(token)}
    if len(meant - kept) <= (count - len(kept)) // 2:
        kept |= meant
    for tokens in _ORDERS[tokenizer.kind](tokenizer):
        ids = {vocabulary[token] for token in tokens if token in vocabulary}
        if len(ids) == len(set(tokens)) and len(kept | ids) <= count and (not ids & added or ids <= kept):
            kept |= ids
        if len(kept) == count:
            break
    for left in (sorted(set(vocabulary.values()) - kept), range(rows - 1, -1, -1)):
        kept |= set([i for i in left if i not in kept][: count - len(kept)])
    return sorted(kept)


def _required(tokenizer: TokenizerFiles, named: Iterable[int], rows: int) -> set[int]:
    if tokenizer.kind not in _ORDERS:
        raise CannotCutError(f"its tokenizer is of the kind {tokenizer.kind or 'unknown'}")
    vocabulary = tokenizer.vocabulary()
    tokens = tokenizer.named() | {token for token in vocabulary if _BYTE.fullmatch(token)}
    tokens |= {token for token in tokenizer.special() if not _UNUSED.fullmatch(token)}
    if tokenizer.kind == "BPE" and _by_bytes(tokenizer):
        suffix = tokenizer.rules["model"].get("end_of_word_suffix") or ""
        tokens |= {token for token in vocabulary if token.removesuffix(suffix) in _BYTE_LETTERS}
    return {i for i in ({vocabulary[token] for token in tokens} | set(named)) if 0 <= i < rows}


def _by_bytes(tokenizer: TokenizerFiles) -> bool:
    """Whether each letter of a token stands for a byte."""
    return any("ByteLevel" in texts(tokenizer.rules.get(key)) for key in ("pre_tokenizer", "decoder"))


def _byte_letters() -> frozenset[str]:
    """The letters that GPT-2 wrote bytes with: those that print stand for themselves."""
    printed = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return frozenset(map(chr, printed)) | frozenset(chr(256 + n) for n in range(256 - len(printed)))


_BYTE_LETTERS = _byte_letters()


def _merged(tokenizer: TokenizerFiles) -> Iterator[tuple[str, ...]]:
    """The parts and the result of each merge, in the order in which they were learnt."""
    prefix = tokenizer.rules["model"].get("continuing_subword_prefix") or ""
    for merge in tokenizer.rules["model"].get("merges", ()):
        first, second = pair(merge)
        yield first, second, first + second.removeprefix(prefix)


def pair(merge: str | list[str]) -> tuple[str, str]:
    """Both forms in which a merge is written."""
    first, second = merge if isinstance(merge, list) else merge.split(" ", 1)
    return first, second


def _scored(tokenizer: TokenizerFiles) -> Iterator[tuple[str, ...]]:
    """The most probable letters and pieces: a text whose letters are missing cannot be written."""
    pieces = sorted(tokenizer.rules["model"]["vocab"], key=lambda piece: -float(piece[1]))
    return _in_turn([token for token, _ in pieces], lambda token: len(token) == 1)


def _by_number(tokenizer: TokenizerFiles) -> Iterator[tuple[str, ...]]:
    """As they are numbered, which is by frequency."""
    model = tokenizer.rules["model"]
    vocabulary: Mapping[str, int] = model["vocab"]
    prefix = model.get("continuing_subword_prefix") or ""
    tokens = [
        token for token in sorted(vocabulary, key=lambda token: vocabulary[token]) if not _UNUSED.fullmatch(token)
    ]
    return _in_turn(tokens, lambda token: len(token.removeprefix(prefix)) == 1)


def _in_turn(tokens: list[str], is_letter: Callable[[str], bool]) -> Iterator[tuple[str, ...]]:
    """Some letters, then letters and longer ones in turn."""
    letters = [token for token in tokens if is_letter(token)]
    others = [token for token in tokens if not is_letter(token)]
    yield from ((token,) for token in letters[:_FIRST_LETTERS])
    letters = letters[_FIRST_LETTERS:]
    for at in range(max(len(letters), len(others))):
        yield from ((token,) for token in (*letters[at : at + 1], *others[at : at + 1]))


_ORDERS: dict[str, Order] = {"BPE": _merged, "Unigram": _scored, "WordPiece": _by_number, "WordLevel": _by_number}
