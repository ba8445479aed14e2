"""Whether a mask is a causal one and nothing else, by the source of the script."""

import pytest

from distdbg.evidence.trace.lines import lines_of
from distdbg.evidence.trace.places import TracePlace

CALL = "    return scaled_dot_product_attention(q, k, v, attn_mask={})\n"
CAUSAL = [
    "torch.ones(n, n, dtype=torch.bool).tril()",
    "torch.tril(torch.ones(n, n)).bool()",
    "torch.tril(torch.ones(n, n, device=d)).to(torch.bool)[None, None]",
    "torch.triu(torch.full((n, n), float('-inf')), diagonal=1).to(q.dtype)",
    "nn.Transformer.generate_square_subsequent_mask(n)[:t, :t]",
]
NOT = [
    "torch.ones(n, n, dtype=torch.bool)",
    "torch.tril(torch.ones(n, n))",  # numbers: they are added to the scores
    "torch.ones(n, n, dtype=torch.bool).tril().to(q.dtype)",
    "torch.ones(n, n, dtype=torch.bool).tril(-1)",
    "torch.ones(n, n, dtype=torch.bool).tril().triu(-64)",
    "torch.triu(torch.full((n, n), float('-inf')), diagonal=0)",
    "torch.ones(n, n, dtype=torch.bool).tril()[5:, 5:]",
    "torch.ones(n, n, dtype=torch.bool).tril() & padding",
    "make_mask(n)",
]


def lines(source, at=0):
    number = next(n for n, line in enumerate(source.splitlines(), 1) if line.startswith("def forward"))
    return lines_of(source, TracePlace("train.py", number, "forward", "scaled_dot_product_attention", at), "masked")


@pytest.mark.parametrize("mask", CAUSAL)
def test_causal_masks_are_known_wherever_they_are_named(mask):
    assert lines(f"def forward(q, k, v, n):\n{CALL.format(mask)}") == (2,)
    assert lines(f"def forward(q, k, v, n):\n    mask = {mask}\n{CALL.format('mask')}", at=3) == (3,)
    buffer = f"class A:\n  def __init__(self):\n    self.register_buffer('m', {mask})\n"
    assert lines(f"{buffer}\ndef forward(self, q, k, v):\n{CALL.format('self.m[:t, :t]')}") == (6,)


@pytest.mark.parametrize("mask", NOT)
def test_what_is_more_or_less_than_causal_is_not_named(mask):
    assert lines(f"def forward(q, k, v, n):\n    mask = {mask}\n{CALL.format('mask')}") == ()


@pytest.mark.parametrize("also", ["mask[0] = True", "mask &= padding", "mask.fill_(True)", "mask = None",
                                  "a, mask = both()", "def g(mask): pass"])  # fmt: skip
def test_a_mask_that_may_be_another_is_not_known(also):
    assert lines(f"def forward(q, k, v, n):\n    mask = {CAUSAL[0]}\n    {also}\n{CALL.format('mask')}") == ()
