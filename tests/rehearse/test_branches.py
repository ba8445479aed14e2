"""Which branch a read of a value steers."""

import pytest

from distdbg.rehearse.branches import branch_of

#: The text, its line that reads the value (with `# read`), the condition's line and whether it loops; None: no branch
CASES = {
    "while on a tensor": ("while loss > 0.1:  # read\n    step()\n", (1, True)),
    "a name in a while": ("value = 9.0\nwhile value > 1:\n    value = loss.item()  # read\n", (2, True)),
    "early stopping": (
        "for step in data:\n    value = loss.item()  # read\n    if value < best:\n        break\n", (3, True)
    ),
    "a check for NaN": ("if torch.isnan(loss):  # read\n    skip()\n", (1, False)),
    "an assertion": ("assert loss.item() < 5  # read\n", (1, False)),
    "a conditional expression": ("x = 1 if loss.item() > 2 else 3  # read\n", (1, False)),
    "how often a loop goes round": (
        "count = int(mask.sum())  # read\nfor _ in range(count):\n    step()\n", (2, True)
    ),
    "over a list of values": ("for row in table.tolist():  # read\n    print(row)\n", None),
    "how many were found": ("found = torch.nonzero(mask)  # read\nif len(found):\n    step()\n", (2, False)),
    "printed": ("value = loss.item()  # read\nprint(value)\nif step % 10 == 0:\n    save()\n", None),
    "the same name in another function": (
        "def one():\n    value = loss.item()  # read\n    return value\n\n"
        "def other(value):\n    if value:\n        pass\n",
        None,
    ),
    "a condition of several lines": ("if (\n    step > 3\n    and loss.item() > 2  # read\n):\n    pass\n", (2, False)),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_branch(case):
    text, wanted = CASES[case]
    line = next(n for n, one in enumerate(text.splitlines(), 1) if "# read" in one)
    found = branch_of(text, line, "item")
    assert (found and (found.line, found.loops)) == wanted, found


def test_a_tensor_as_a_condition_is_named_wherever_it_is():
    assert branch_of("both = loss > 1 and other\n", 1, "bool").words == "both = loss > 1 and other"
    assert branch_of("both = loss.item()\n", 1, "item") is None


def test_no_python_is_no_branch():
    assert branch_of("while (", 1, "bool") is None
