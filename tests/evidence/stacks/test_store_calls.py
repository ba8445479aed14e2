"""The key that a call of a store waits for, by its text and the variables that are known."""

import pytest

from distdbg.evidence.stacks.store_calls import HOLE, setting_calls, waiting_call

STORE = {"store": "<torch._C._distributed_c10d.PrefixStore at 0x7f00>"}


@pytest.mark.parametrize(("expression", "variables", "keys"), [
    ('"ready"', {}, ("ready",)),
    ("key", {"key": '"lr/4"'}, ("lr/4",)),
    ('f"lr/{step}"', {"step": "4"}, ("lr/4",)),
    ('f"lr/{step:05d}"', {"step": "4"}, ("lr/00004",)),
    ('"lr/%d/%s" % (step, name)', {"step": "4", "name": '"a"'}, ("lr/4/a",)),
    ('prefix + "/" + str(step + 1)', {"prefix": '"p"', "step": "4"}, ("p/5",)),
    ('["a", f"b{n}"]', {"n": "2"}, ("a", "b2")),
    ("key", {}, (HOLE,)),
    ('f"lr/{self.step}"', {"self": "<A at 0x1>"}, (f"lr/{HOLE}",)),
    ('f"lr/{step!r}"', {"step": "4"}, (f"lr/{HOLE}",)),
    ("key", {"key": '"a long one that py-spy has cut..."'}, (HOLE,)),
    ("make_key(step)", {"step": "4"}, (HOLE,)),
])  # fmt: skip
def test_keys(expression, variables, keys):
    call = waiting_call(f"def f():\n    return float(store.get({expression}))\n", 2)
    assert call.keys(variables) == keys
    assert call.names >= variables.keys() - {"self"} | {"store"}


@pytest.mark.parametrize("line", ["x = store.set('a', 'b')", "x = 1", "store.get('a') or store.get('b')", "store.get("])
def test_lines_that_wait_for_no_key_or_for_nobody_knows_which(line):
    assert waiting_call(line, 1) is None


def test_what_is_a_store():
    assert waiting_call("store.get('a')", 1).is_of_a_store(STORE)
    assert not waiting_call("store.get('a')", 1).is_of_a_store({"store": "{}"})
    assert waiting_call("self.tcp_store.wait(['a'])", 1).is_of_a_store({})
    assert not waiting_call("queue.get('a')", 1).is_of_a_store({})


def test_calls_that_set_keys():
    source = "store.set('a', '1')\nsettings.set('b', '2')\nself.store.add(f'c{n}', 1)\nstore.multi_set(['d'], ['1'])\n"
    assert [(call.line, call.text) for call in setting_calls(source)] == [(1, "'a'"), (3, "f'c{n}'"), (4, "['d']")]
