"""How much memory a process can have of a GPU: a size that a person gives, or one of a few well-known cards."""

from __future__ import annotations

import re
from dataclasses import dataclass

from distdbg.errors import UsageError


@dataclass(frozen=True)
class Card:
    name: str
    bytes: int


#: GiB that torch counts, "has a total capacity of" in its error messages: less than what is sold, as the driver and
#: the correction of errors have their part. Source beside each.
_KNOWN = {
    "T4": 14.75,  # https://github.com/hpcaitech/Open-Sora/issues/697
    "RTX4090": 23.52,  # https://github.com/Soul-AILab/SoulX-FlashTalk/issues/5
    "A100-40GB": 39.50,  # https://github.com/TianheWu/CoSeR/issues/10
    "L40": 44.40,  # https://github.com/QwenLM/Qwen3-VL/issues/2097
    "A100-80GB": 79.10,  # https://github.com/pixeli99/SVD_Xtend/issues/39
    "H100": 79.11,  # https://github.com/vllm-project/vllm/issues/27508
    "H200": 139.72,  # logs of several sites: 139.72 to 139.81
    "B200": 178.35,  # https://github.com/pytorch/ao/pull/4002
}
_SIZE = re.compile(r"(?P<number>\d+(?:\.\d+)?) *(?P<unit>[GM]i?B?)?", re.I)
_UNITS = {"g": 2**30, "gi": 2**30, "gib": 2**30, "gb": 10**9, "m": 2**20, "mi": 2**20, "mib": 2**20, "mb": 10**6}


def card(words: str) -> Card:
    """`80GiB`, `80` (GiB), `24GB` (of 10^9 bytes), `H100`. Raises UsageError for what is neither."""
    for name, gib in _KNOWN.items():
        if _plain(words) == _plain(name):
            return Card(name, int(gib * 2**30))
    told = _SIZE.fullmatch(words.strip())
    size = int(float(told["number"]) * _UNITS[(told["unit"] or "GiB").lower()]) if told else 0
    if size < 2**20:
        raise UsageError(
            f"--card {words!r} is neither a size nor a card that is known here",
            f"Give GiB, such as 80GiB, or one of {', '.join(_KNOWN)}.",
        )
    return Card(words.strip() if told and told["unit"] else f"{words.strip()}GiB", size)


def _plain(words: str) -> str:
    return re.sub(r"[\s_-]", "", words).upper()
