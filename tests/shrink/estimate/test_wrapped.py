"""Which blocks FSDP2 is given: of a list, of a dict as torchtitan has it, of a model that is one sequence or dict."""

import pytest
from torch import nn

from distdbg.shrink.estimate.tracking import wrapped


class Block(nn.Module):
    def __init__(self, experts=0):
        super().__init__()
        self.linear = nn.Linear(2, 2)
        if experts:
            self.experts = nn.ModuleList(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)) for _ in range(experts))


class Tower(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.embedding, self.layers, self.head = nn.Embedding(2, 2), layers, nn.Linear(2, 2)


def blocks(number, experts=0):
    return [Block(experts) for _ in range(number)]


def numbered(found):
    return nn.ModuleDict({str(number): block for number, block in enumerate(found)})


@pytest.mark.parametrize("form", [nn.ModuleList, numbered, lambda found: nn.Sequential(*found)])
@pytest.mark.parametrize("experts", [0, 8])
def test_the_blocks_of_a_stack_and_not_the_experts_in_them(form, experts):
    found = blocks(4, experts)
    assert wrapped(Tower(form(found))) == found


def test_two_stacks():
    one, other = blocks(3), blocks(5)
    model = nn.Module()
    model.encoder, model.decoder = Tower(nn.ModuleList(one)), Tower(nn.ModuleList(other))
    assert wrapped(model) == one + other


def test_a_dict_that_holds_all_of_a_model_is_no_stack():
    found = blocks(4)
    model = nn.Module()
    model.transformer = nn.ModuleDict({"wte": nn.Embedding(2, 2), "h": nn.ModuleList(found), "ln_f": nn.LayerNorm(2)})
    assert wrapped(model) == found
    assert wrapped(nn.Sequential(nn.Embedding(2, 2), *found, nn.Linear(2, 2))) == found


def test_what_a_model_names_itself_comes_first():
    stages = nn.ModuleList(Tower(nn.ModuleList(blocks(3))) for _ in range(2))
    model = Tower(stages)
    assert wrapped(model) == list(stages)
    model._no_split_modules = ["Block"]
    assert wrapped(model) == [block for stage in stages for block in stage.layers]


def test_without_blocks_the_longest_list_of_plain_modules():
    model = nn.Module()
    model.few, model.more = nn.ModuleList([nn.Linear(2, 2)] * 2), nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
    model.more.append(nn.Linear(2, 2))
    assert wrapped(model) == list(model.more)
    assert wrapped(nn.Linear(2, 2)) == []
