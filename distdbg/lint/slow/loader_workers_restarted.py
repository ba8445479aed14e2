"""Workers of a loader that are started anew for each of many short epochs."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.constants import number
from distdbg.lint.script.origins import made_of
from distdbg.lint.script.script import argument, has_stars, is_constant

#: without these words there is nothing to check
NEEDS = ({"num_workers"}, {"DataLoader"}, {"backward("})

#: data sets that a GPU reads in seconds
_SHORT = {
    "MNIST", "FashionMNIST", "KMNIST", "EMNIST", "CIFAR10", "CIFAR100", "FakeData", "TensorDataset", "SVHN", "USPS",
}  # fmt: skip


def check(context: Context) -> Iterator[Hit]:
    for epochs in context.loops.of_kind("epoch"):
        for place in (epochs, *context.loops.reached(epochs)):
            for loop in context.script.within(place, ast.For):
                if loop is epochs or context.loops.in_evaluation(loop):
                    continue
                for loader in context.values.sites(loop.iter, "loader"):
                    short = _short(context, loader)
                    if short is not None and _restarts(context, loader):
                        text = f"{short} is read in seconds, and each epoch starts the workers of its loader anew"
                        yield Hit(loader, text, "possible", related=((epochs, "the loop over epochs"),))
                        return


def _restarts(context: Context, loader: ast.Call) -> bool:
    if has_stars(loader) or argument(loader, -1, "persistent_workers") is not None:
        return False
    workers = argument(loader, 5, "num_workers")
    return workers is not None and not is_constant(workers, 0) and number(context, workers) != 0


def _short(context: Context, loader: ast.Call) -> str | None:
    data = argument(loader, 0, "dataset")
    calls = [
        c
        for part in (made_of(context, data) if data is not None else ())
        for c in context.script.within(part, ast.Call)
    ]
    return next((context.script.last_names[c] for c in calls if context.script.last_names[c] in _SHORT), None)
