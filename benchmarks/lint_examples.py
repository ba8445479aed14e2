"""What lint finds of real mistakes, and what it says of clean scripts.

    python benchmarks/lint_examples.py LIST.yaml MIRRORS [--whole] [--held-back] [--peers]

LIST.yaml has `positives` (id, rule, repo, path, buggy_commit, fix_commit) and `negatives` (id, repo, path, commit), as
lint_mistakes.yaml beside this file has. Its repositories are split into two halves by a hash of their names: rules are
tuned on one half only, and recall is printed for each half and rule.
MIRRORS holds a git directory of each repository as OWNER+NAME/repo. A mistake counts as found where a finding of the
rule's id cites a line that its fix changed, or up to three lines beside them, or of a function whose lines it changed
(`if rank != 0: return` is put at its head), and is gone after the fix; lines elsewhere where the mistake shows are
listed as `also`. `why` is what a mistake asks of lint (see CLASSES), and recall is printed for each of these, too;
`shown` is whether the file by itself shows the mistake to a reader, or only its repository. Of the held-back half only
totals are printed: whoever reads single cases of it, with --held-back, tunes on it. Each file is linted by itself, or
with --whole together with all Python files of its repository at that commit. With --peers, torch-preflight and TorchFix
(flake8), where they are on PATH, read the same files: any finding of theirs in those lines
counts, whatever it is about.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import hashlib
import io
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from distdbg.lint.linting import Linted, lint_files, lint_text
from distdbg.lint.script.parsing import UnreadableScript, parse
from distdbg.lint.script.script import FUNCTIONS
from distdbg.model import Finding

IDS = {
    "set_epoch": "missing-set-epoch",
    "save_rank0": "checkpoint-race",
    "save_local_rank0": "checkpoint-race",
    "no_sync": "redundant-allreduce",
    "retained_graph": "graph-retained",
    "eval_no_grad": "eval-with-grad",
    "same_seed_all_ranks": "seeds-identical",
}
BESIDE = 3
#: what a mistake asks of lint: the key `why` of an entry
CLASSES = {
    "plain": "constructor, mistake and control flow in one function",
    "role": "an object that is known by its name, its annotation or its use only",
    "flow": "control flow through functions, methods, loops of another form, branches",
    "value": "a value through a dict, an attribute, an alias, a container",
    "words": "the text has no word of the rule: another spelling of the same thing",
    "caller": "the file does not show who calls it",
    "helper": "the file does not show what it calls",
    "syntax": "syntax of a newer Python than lint runs with",
}
#: not empty where each file is linted together with its repository
WHOLE: list[bool] = []


def text_at(mirrors: Path, repo: str, commit: str, path: str) -> str | None:
    folder = mirrors / repo.replace("/", "+") / "repo"
    done = subprocess.run(["git", "-C", str(folder), "show", f"{commit}:{path}"], capture_output=True, check=False)
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None


@lru_cache(maxsize=2)
def linted_together(mirrors: Path, repo: str, commit: str) -> dict[str, Linted | UnreadableScript]:
    folder = mirrors / repo.replace("/", "+") / "repo"
    archive_ = ["git", "-C", str(folder), "archive", commit, ":(glob)**/*.py"]  # a mirror may lack large files
    done = subprocess.run(archive_, capture_output=True, check=False)
    texts: dict[str, str] = {}
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        for member in archive:
            file = archive.extractfile(member) if member.isfile() and member.name.endswith(".py") else None
            if file is not None:
                texts[member.name] = file.read().decode("utf-8", "replace")
    return lint_files(texts)


def findings_of(mirrors: Path, repo: str, commit: str, path: str, text: str) -> tuple[Finding, ...]:
    """What is said of one file; of all files of its repository that cite it where a lint together was asked for."""
    if WHOLE:
        together = (linted for linted in linted_together(mirrors, repo, commit).values() if isinstance(linted, Linted))
        return tuple(f for linted in together for f in linted.findings if any(c.path == path for c in f.evidence))
    try:
        return lint_text(path, text).findings
    except UnreadableScript:
        return ()


def half(repo: str) -> str:
    """Which half a repository belongs to; its name alone decides."""
    return "held back" if hashlib.sha256(repo.lower().encode()).digest()[0] % 2 else "tuning"


def changed(before: str, after: str) -> list[tuple[int, int]]:
    """1-based spans of lines that the fix replaced, or inserted between, with the lines beside them."""
    matcher = difflib.SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False)
    return [(a + 1 - BESIDE, b + BESIDE) for kind, a, b, _, _ in matcher.get_opcodes() if kind != "equal"]


def functions_around(text: str, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The innermost functions that changed lines are in."""
    try:
        nodes = ast.walk(parse(text))
    except UnreadableScript:
        return []
    functions = [(n.lineno, n.end_lineno or n.lineno) for n in nodes if isinstance(n, FUNCTIONS)]
    around = ([f for f in functions if f[0] <= a + BESIDE and b - BESIDE <= f[1]] for a, b in spans)
    return [max(found) for found in around if found]


def within(line: int, spans: list[tuple[int, int]]) -> bool:
    return any(first <= line <= last for first, last in spans)


def positives(entries: list[dict[str, Any]], mirrors: Path, *, held_back: bool) -> tuple[int, int]:
    found = had = 0
    by: dict[tuple[str, str], list[str]] = {}
    for entry in entries:
        before = text_at(mirrors, entry["repo"], entry["buggy_commit"], entry["path"])
        after = text_at(mirrors, entry["repo"], entry["fix_commit"], entry["path"])
        if before is None or after is None:
            print(f"{entry['id']}: not to be had")
            continue
        had += 1
        wanted, spans = IDS.get(entry["rule"], entry["rule"]), changed(before, after)
        where = mirrors, entry["repo"]
        spans += [(line - BESIDE, line + BESIDE) for line in entry.get("also", ())]
        spans += functions_around(before, spans)
        said_of = findings_of(*where, entry["buggy_commit"], entry["path"], before)
        hits = [f for f in said_of if f.id == wanted]
        hits = [f for f in hits if any(within(c.line or 0, spans) for c in f.evidence if c.path == entry["path"])]
        said_after = findings_of(*where, entry["fix_commit"], entry["path"], after)
        left = Counter(f.evidence[0].quote for f in said_after if f.id == wanted)
        said = Counter(f.evidence[0].quote for f in said_of if f.id == wanted)  # the same line may be elsewhere, too
        right = [f for f in hits if left[f.evidence[0].quote] < said[f.evidence[0].quote]]
        found += bool(right)
        part = half(entry["repo"])
        for key in ("all", wanted, *(f"{name} {entry[name]}" for name in ("why", "shown") if name in entry)):
            by.setdefault((part, key), []).append(right[0].severity if right else "")
        result = (
            f"line {right[0].evidence[0].line} ({right[0].severity})"
            if right
            else "found after the fix, too"
            if hits
            else "missed"
        )
        if part == "tuning" or held_back:
            print(f"{entry['id']} {wanted}, {part}: {result}")
    for (part, key), ones in sorted(by.items()):
        if part == "tuning" or held_back or key == "all" or key.startswith("shown"):
            shown = sum(bool(one) and one != "info" for one in ones)
            print(f"{part}, {key}: {sum(map(bool, ones))} of {len(ones)}, {shown} of them shown without --all")
    return found, had


def negatives(entries: list[dict[str, Any]], mirrors: Path) -> None:
    counts: dict[str, int] = {}
    had = 0
    for entry in entries:
        text = text_at(mirrors, entry["repo"], entry["commit"], entry["path"])
        if text is None:
            print(f"{entry['id']}: not to be had")
            continue
        had += 1
        for finding in findings_of(mirrors, entry["repo"], entry["commit"], entry["path"], text):
            counts[finding.severity] = counts.get(finding.severity, 0) + 1
            if finding.severity != "info":
                print(f"{entry['id']} {entry['path']}:{finding.evidence[0].line} {finding.severity} {finding.id}")
    print(f"{had} clean scripts: {counts or 'silent'} (look at each one that is named)")


def preflight(path: Path) -> Iterator[int]:
    done = subprocess.run(
        ["torch-preflight", "check", "--format", "json", str(path)], capture_output=True, text=True, check=False
    )
    try:
        yield from _lines(json.loads(done.stdout))
    except ValueError:
        return


def torchfix(path: Path) -> Iterator[int]:
    command = ["flake8", "--isolated", "--select", "TOR", "--format", "%(row)d", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    yield from (int(line) for line in done.stdout.split() if line.isdigit())


def _lines(value: Any) -> Iterator[int]:  # noqa: ANN401
    if isinstance(value, dict):
        if isinstance(value.get("line"), int):
            yield value["line"]
        for inner in value.values():
            yield from _lines(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _lines(inner)


def peers(listed: dict[str, Any], mirrors: Path) -> None:
    tools: list[tuple[str, str, Callable[[Path], Iterator[int]]]] = [
        ("torch-preflight", "torch-preflight", preflight),
        ("TorchFix", "flake8", torchfix),
    ]
    for name, program, lines in tools:
        if shutil.which(program) is None:
            print(f"{name}: not on PATH")
            continue
        found = said = 0
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "script.py"
            for entry in listed["positives"]:
                before = text_at(mirrors, entry["repo"], entry["buggy_commit"], entry["path"]) or ""
                after = text_at(mirrors, entry["repo"], entry["fix_commit"], entry["path"]) or ""
                path.write_text(before, encoding="utf-8")
                found += any(within(line, changed(before, after)) for line in lines(path))
            for entry in listed["negatives"]:
                path.write_text(text_at(mirrors, entry["repo"], entry["commit"], entry["path"]) or "", encoding="utf-8")
                said += len(set(lines(path)))
        print(f"{name}: says something at the place of {found} mistakes; {said} lines of the clean scripts")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("list", type=Path, nargs="?")
    parser.add_argument("mirrors", type=Path, nargs="?")
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--held-back", action="store_true")
    parser.add_argument("--peers", action="store_true")
    options = parser.parse_args()
    if options.list is None or options.mirrors is None:
        print("lint_examples: needs a list of scripts and a folder of repositories; skipped")
        return
    WHOLE.extend([True] if options.whole else [])
    listed = yaml.safe_load(options.list.read_text(encoding="utf-8"))
    found, had = positives(listed["positives"], options.mirrors, held_back=options.held_back)
    print(f"found {found} of {had} mistakes ({100 * found / max(had, 1):.0f} %)")
    negatives(listed["negatives"], options.mirrors)
    if options.peers:
        peers(listed, options.mirrors)


if __name__ == "__main__":
    sys.exit(main())
