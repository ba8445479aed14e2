"""Files that are linted together: names are followed from one into the others, and each file is reported once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from distdbg.lint.linting import Linted, lint_files
from distdbg.lint.script.parsing import UnreadableScript

CASES = sorted(p for p in (Path(__file__).parent / "across").iterdir() if p.is_dir())
_EXPECT = re.compile(r"#\s*expect:\s*([\w-]+)")
SAVES = "import torch\n\n\ndef save(model):\n    torch.save(model.state_dict(), 'model.pt')\n"
CALLS = """\
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from {module} import {name}

dist.init_process_group("nccl")
model = DistributedDataParallel(net)
{guard}{name}(model)
"""


def texts_below(folder: Path) -> dict[str, str]:
    return {p.relative_to(folder).as_posix(): p.read_text(encoding="utf-8") for p in sorted(folder.rglob("*.py"))}


def found(texts: dict[str, str]) -> set[tuple[str, int | None, str]]:
    results = [r for r in lint_files(texts).values() if isinstance(r, Linted)]
    return {(f.evidence[0].path, f.evidence[0].line, f.id) for r in results for f in r.findings if f.severity != "info"}


@pytest.mark.parametrize("folder", CASES, ids=lambda p: p.name)
def test_what_the_files_mark_is_found_and_nothing_else(folder: Path) -> None:
    texts = texts_below(folder)
    expected = {
        (path, number, match[1])
        for path, text in texts.items()
        for number, line in enumerate(text.splitlines(), 1)
        for match in _EXPECT.finditer(line)
    }
    assert bool(expected) == folder.name.startswith("bad_")
    assert found(texts) == expected
    assert found(dict(reversed(texts.items()))) == expected, "the order of the files has no say"


def test_a_helper_is_judged_as_its_callers_use_it() -> None:
    all_ranks = CALLS.format(module="helper", name="save", guard="")
    one_rank = CALLS.format(module="helper", name="save", guard="if dist.get_rank() == 0:\n    ")
    race = {("helper.py", 5, "checkpoint-race")}
    assert found({"helper.py": SAVES, "one.py": one_rank}) == set()
    assert found({"helper.py": SAVES, "one.py": one_rank, "all.py": all_ranks}) == race
    assert found({"helper.py": SAVES, "test_all.py": all_ranks}) == set(), "a test shows nothing about training"


@pytest.mark.parametrize(
    "imports", ["from .deep import save", "import pkg\nfrom pkg.deep import save as save", "from .deep import *"]
)
def test_names_that_a_package_passes_on(imports: str) -> None:
    texts = {
        "pkg/__init__.py": f"import torch\n{imports}\n",
        "pkg/deep.py": SAVES,
        "train.py": CALLS.format(module="pkg", name="save", guard=""),
    }
    assert found(texts) == {("pkg/deep.py", 5, "checkpoint-race")}


@pytest.mark.parametrize(
    "stars", ["from .deep import *\nfrom .other import *", "from .other import *\nfrom .deep import *"]
)
def test_all_names_of_several_modules(stars: str) -> None:
    """Where a package passes them on, and where a script takes them itself."""
    files = {"pkg/__init__.py": f"import torch\n{stars}\n", "pkg/deep.py": SAVES, "pkg/other.py": "import torch\n"}
    user = CALLS.format(module="pkg", name="save", guard="")
    race = {("pkg/deep.py", 5, "checkpoint-race")}
    assert found(files | {"train.py": user}) == race
    assert found(files | {"train.py": user.replace("import save", "import *")}) == race
    assert found(files | {"train.py": user.replace("import save", "import *").replace("save(", "load(")}) == set()


def test_two_files_that_import_all_names_of_each_other() -> None:
    texts = {"a.py": f"from b import *\n{SAVES}", "b.py": "import torch\nfrom a import *\n"}
    assert found(texts | {"train.py": CALLS.format(module="b", name="save", guard="")}) == {
        ("a.py", 6, "checkpoint-race")
    }


@pytest.mark.parametrize(
    ("others", "seen"), [([], True), (["old/pkg/__init__.py"], False), (["src/__init__.py"], False)]
)
def test_a_package_in_a_folder_beside_the_scripts(others: list[str], *, seen: bool) -> None:
    """`src/pkg` is found where there is no other package of that name, and src is none itself."""
    texts = {"src/pkg/__init__.py": "", "src/pkg/deep.py": SAVES} | dict.fromkeys(others, "")
    texts["scripts/train.py"] = CALLS.format(module="pkg.deep", name="save", guard="")
    assert found(texts) == ({("src/pkg/deep.py", 5, "checkpoint-race")} if seen else set())


def test_a_function_that_is_defined_in_a_branch() -> None:
    helper = "try:\n    import torch\nexcept ImportError:\n    torch = None\nelse:\n" + "".join(
        f"    {line}\n" for line in SAVES.splitlines()[2:]
    )
    texts = {"helper.py": helper, "train.py": CALLS.format(module="helper", name="save", guard="")}
    assert found(texts) == {("helper.py", 8, "checkpoint-race")}


def test_what_runs_when_a_file_is_started_is_no_caller_for_those_that_import_it() -> None:
    start = "\n\nif __name__ == '__main__':\n    MODEL = 1\n    save(net)\n"
    helper = SAVES.replace("(model):", "(model, path=MODEL):") + start
    guarded = CALLS.format(module="helper", name="save", guard="if dist.get_rank() == 0:\n    ")
    assert found({"helper.py": helper, "train.py": guarded}) == set()


def test_a_comment_silences_what_another_file_brings_up() -> None:
    quiet = SAVES.replace("'model.pt')", "'model.pt')  # distdbg: ignore[checkpoint-race]")
    results = lint_files({"helper.py": quiet, "all.py": CALLS.format(module="helper", name="save", guard="")})
    helper = results["helper.py"]
    assert isinstance(helper, Linted) and helper.silenced == 1
    assert "checkpoint-race" not in {f.id for f in helper.findings}


def test_a_file_that_cannot_be_read_hides_no_other() -> None:
    results = lint_files(
        {"helper.py": "def save(:\n", "train.py": CALLS.format(module="helper", name="save", guard="")}
    )
    assert isinstance(results["helper.py"], UnreadableScript) and isinstance(results["train.py"], Linted)


def test_files_that_import_each_other_end_and_are_reported_once() -> None:
    texts = {
        f"m{n}.py": f"import torch\nfrom m{after} import f{after}\n\n\ndef f{n}(x):\n    f{after}(x)\n"
        for n, after in enumerate([1, 2, 3, 4, 0])
    }
    assert found(texts) == set()


def test_nothing_is_said_of_what_only_some_ranks_have() -> None:
    """Not even a remark, which the cases above leave out."""
    texts = texts_below(CASES[0].parent / "good_saver_made_on_one_rank")
    results = lint_files(texts)
    assert not [f for r in results.values() if isinstance(r, Linted) for f in r.findings if f.id == "checkpoint-race"]
    everywhere = texts | {
        "train.py": texts["train.py"].replace("    if dist.get_rank() == 0:\n        saver", "    saver")
    }
    results = lint_files(everywhere)
    assert [f for r in results.values() if isinstance(r, Linted) for f in r.findings if f.id == "checkpoint-race"]


def remarks(texts: dict[str, str]) -> set[tuple[str, int | None, str]]:
    """Whatever is found, of severity info, too."""
    results = [r for r in lint_files(texts).values() if isinstance(r, Linted)]
    return {(f.evidence[0].path, f.evidence[0].line, f.id) for r in results for f in r.findings}


@pytest.mark.parametrize(
    ("use", "kept"),
    [
        ("print(KEEPERS, Keeper)", True),  # knows the class, and calls nothing of it
        ("Keeper().prepare()", True),  # calls something else of it
        ("if dist.get_rank() == 0:\n    keeper = Keeper()\n    keeper.run(model)", False),  # which calls what saves
    ],
)
def test_a_file_that_imports_a_class_judges_only_what_it_calls(use: str, *, kept: bool) -> None:
    keeper = """\
import torch
import torch.distributed as dist

KEEPERS = []
rank = dist.get_rank()


class Keeper:
    def prepare(self):
        print(rank)

    def run(self, model):
        self.keep(model)

    def keep(self, model):
        torch.save(model.state_dict(), 'model.pt')
"""
    found_alone = {("keeper.py", 16, "checkpoint-race")}
    assert remarks({"keeper.py": keeper}) == found_alone
    user = f"import torch.distributed as dist\nfrom keeper import KEEPERS, Keeper\n\n{use}\n"
    assert remarks({"keeper.py": keeper, "train.py": user}) == (found_alone if kept else set())


def test_a_file_that_does_not_reach_what_a_finding_cites_does_not_judge_it() -> None:
    steps = """\
def update(optimizer, scheduler):
    scheduler.step()
    optimizer.step()


def main(model, loader, epochs):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)
    for epoch in range(epochs):
        for batch in loader:
            optimizer.zero_grad()
            model(batch).backward()
            update(optimizer, scheduler)
"""
    texts = {"steps.py": f"import torch\n\n\n{steps}"}
    found_alone = remarks(texts)
    assert {name for _, _, name in found_alone} == {"scheduler-before-optimizer"}
    other = "import torch\nfrom steps import update\n\n\ndef other(a, b):\n    update(a, b)\n"
    assert remarks(texts | {"other.py": other}) == found_alone


def test_a_seed_that_a_helper_draws_if_none_is_given_is_not_drawn_by_its_caller() -> None:
    main = """\
import torch.distributed as dist
from seeds import set_seed


def main(args):
    dist.init_process_group("nccl")
    set_seed(args.seed)
    print(dist.get_rank())
"""
    helper = """\
import os

import torch


def set_seed(seed):
    {test}seed = int.from_bytes(os.urandom(2), "big")
    torch.manual_seed(seed)
"""
    same = ("main.py", 7, "seeds-identical")
    assert same in remarks({"main.py": main})
    assert same in remarks({"main.py": main, "seeds.py": helper.format(test="if seed == -1:\n        ")})
    assert same not in remarks({"main.py": main, "seeds.py": helper.format(test="")})


def test_a_data_module_of_another_file_leaves_the_loop_to_this_one() -> None:
    data = "import lightning.pytorch as pl\nimport torch\n\n\nclass Data(pl.LightningDataModule):\n    batch = 3\n"
    train = SAVES.replace("\n\n\n", "\nimport torch.distributed as dist\nfrom data import Data\n\n\n") + (
        "\n\ndef main(model):\n    print(Data.batch, dist.get_rank())\n    save(model)\n"
    )
    race = {("train.py", 7, "checkpoint-race")}
    assert remarks({"train.py": train}) == remarks({"train.py": train, "data.py": data}) == race
    assert remarks({"train.py": train + data}) == set()


def test_every_caller_of_a_helper_that_saves_is_named() -> None:
    twice = CALLS.format(module="helper", name="save", guard="") + "save(model)\n"
    helper = lint_files({"helper.py": SAVES, "train.py": twice})["helper.py"]
    assert isinstance(helper, Linted)
    cited = [(c.path, c.line) for f in helper.findings if f.id == "checkpoint-race" for c in f.evidence]
    assert cited == [("helper.py", 5), ("train.py", 7), ("train.py", 8)]


KEEPER = """\
import torch


class Base:
    def finish(self, model):
        self.save(model)

    def save(self, model):
        raise NotImplementedError


class Keeper(Base):
    def save(self, model):
        torch.save(model.state_dict(), 'model.pt')

    def __call__(self, model):
        self.save(model)


class Late(Keeper):
    def finish(self, model):
        super().finish(model)
"""
RANKS = """\
import atexit
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from keeper import Keeper, Late

dist.init_process_group("nccl")
model = DistributedDataParallel(net)
"""
TRAINER = "class Trainer:\n    def __init__(self):\n        self.keeper = Keeper()\n\n\n"


@pytest.mark.parametrize(
    ("before", "call"),
    [
        ("def run(keeper: Keeper):\n    ", "keeper.save(model)"),
        ("def run(keeper: Keeper | None):\n    ", "keeper.finish(model)"),
        (f"{TRAINER}trainer = Trainer()\n", "trainer.keeper.save(model)"),
        (f"{TRAINER}def run(trainer: Trainer):\n    keeper = trainer.keeper\n    ", "keeper.save(model)"),
        ("keeper = Keeper()\n", "keeper(model)"),
        ("keeper = Late()\n", "keeper.finish(model)"),
        ("keeper = Keeper()\n", "atexit.register(keeper.save, model)"),
    ],
)
def test_a_method_is_judged_by_its_callers_whatever_leads_to_its_object(before: str, call: str) -> None:
    texts = {"keeper.py": KEEPER, "train.py": f"{RANKS}{before}{call}\n"}
    line = next(n for n, text in enumerate(KEEPER.splitlines(), 1) if "torch.save" in text)
    assert ("keeper.py", line, "checkpoint-race") in remarks(texts)
    indent = before.rpartition("\n")[2]
    guarded = f"{RANKS}{before}if dist.get_rank() == 0:\n{indent}    {call}\n"
    assert "checkpoint-race" not in {name for _, _, name in remarks(texts | {"train.py": guarded})}


def test_a_method_that_another_one_overrides_is_called_where_that_one_is() -> None:
    base = """\
import torch
import torch.distributed as dist


class Base:
    def run(self, model):
        {guard}self.keep(model)

    def keep(self, model):
        print(model)


class Mine(Base):
    def keep(self, model):
        torch.save(model.state_dict(), 'model.pt')


rank = dist.get_rank()
"""
    race = {("base.py", 15, "checkpoint-race")}
    assert remarks({"base.py": base.format(guard="")}) == race
    assert remarks({"base.py": base.format(guard="if rank == 0: ")}) == set()


def test_a_caller_that_shows_no_ranks_does_not_silence_what_a_helper_shows() -> None:
    helper = SAVES.replace("\n\n\n", "\nimport torch.distributed as dist\n\nRANK = dist.get_rank()\n\n\n")
    race = {("helper.py", 8, "checkpoint-race")}
    assert remarks({"helper.py": helper}) == race
    assert remarks({"helper.py": helper, "main.py": "import torch\nfrom helper import save\n\nsave(model)\n"}) == race


def test_a_finding_that_several_files_bring_up_cites_the_callers_in_all_of_them() -> None:
    texts = {"helper.py": SAVES} | {f"{n}.py": CALLS.format(module="helper", name="save", guard="") for n in "ab"}
    results = lint_files(texts)
    findings = [f for r in results.values() if isinstance(r, Linted) for f in r.findings if f.id == "checkpoint-race"]
    assert [[c.path for c in f.evidence] for f in findings] == [["helper.py", "a.py", "b.py"]]


@pytest.mark.parametrize(("around", "kept"), [("if True:", True), ("with torch.no_grad():", False)])
def test_gradients_that_another_file_turns_off_elsewhere_say_nothing_of_an_evaluation(
    around: str, *, kept: bool
) -> None:
    measure = (
        "import torch\n\n\ndef validate(net, loader):\n    for batch in loader:\n        print(net(batch).item())\n"
    )
    other = "\n\n@torch.no_grad()\ndef average(model):\n    print(model)\n"
    user = f"import torch\nfrom measure import validate\n{other}\n\n{around}\n    validate(model, loader)\n"
    found_alone = {("measure.py", 6, "eval-with-grad")}
    assert remarks({"measure.py": measure}) == found_alone
    assert remarks({"measure.py": measure, "train.py": user}) == (found_alone if kept else set())


def test_a_caller_is_named_that_is_several_functions_away() -> None:
    helper = SAVES + "\n\ndef keep(model):\n    save(model)\n"
    results = lint_files({"helper.py": helper, "train.py": CALLS.format(module="helper", name="keep", guard="")})
    findings = [f for r in results.values() if isinstance(r, Linted) for f in r.findings if f.id == "checkpoint-race"]
    assert [("train.py", 7) in [(c.path, c.line) for c in f.evidence] for f in findings] == [True]


def test_variable_of_one_rank_in_an_imported_file() -> None:
    helper = (
        "import os\nimport torch.distributed as dist\n\nsave = False\nif dist.get_rank() == 0:\n    save = True\n\n\n"
        "def wait():\n    if save:\n        dist.barrier()\n"
    )
    user = "import torch\nfrom helper import wait\n\nwait()\n"
    found = remarks({"helper.py": helper, "train.py": user})
    assert ("helper.py", 11, "rank-conditional-collective") in found
