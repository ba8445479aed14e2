"""Read a job file as YAML: its values, and the line of every key for messages.

Plain words are taken as they are in the file. YAML would make 8 of 010, 750 of 12:30 and 0.1 of 0.10, which is not
what a program or a variable should get, and true of the key `on`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from distdbg.errors import JobFileError
from distdbg.given_file import read_given
from distdbg.plain_text import one_line

_REMEDY = 'docs/launch.md, "Job files", shows what a job file holds.'
_BOOL, _NULL, _MERGE = (f"tag:yaml.org,2002:{name}" for name in ("bool", "null", "merge"))
Keys = tuple[str, ...]
Mistake = tuple[int, str]

#: pydantic's names of what is wrong -> what is expected, in words.
_EXPECTED = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "string_type": "text",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping of names to values",
    "path_type": "a path",
}


@dataclass(frozen=True)
class JobFile:
    """What a file holds. `lines` has the 1-based line of each key, by its path of keys."""

    path: Path
    values: Mapping[str, Any]
    lines: Mapping[Keys, int]

    def line(self, keys: Keys) -> int:
        """The line of the key, or of the nearest one above it; 0 where the file has neither."""
        return next((self.lines[keys[:n]] for n in range(len(keys), 0, -1) if keys[:n] in self.lines), 0)

    def error(self, mistakes: Sequence[Mistake]) -> JobFileError:
        """One error for all mistakes, the first line first."""
        (line, sentence), *others = sorted(mistakes)
        rest = "".join(f"\n{self.path}:{n}: {text}" for n, text in others)
        return JobFileError(str(self.path), line, sentence + rest, _REMEDY)

    def mistake(self, error: Mapping[str, Any], known: Mapping[Keys, Sequence[str]]) -> Mistake:
        """One of pydantic's errors as a line and a sentence. `known` are the keys that there are, by those above."""
        keys = tuple(str(part) for part in error["loc"])
        if error["type"] == "extra_forbidden":
            there = known[keys[:-1]]
            word = keys[-1].replace("-", "_")
            near = difflib.get_close_matches(word, there, n=1) or [k for k in there if k.startswith(word)]
            hint = f"did you mean {near[0]!r}?" if near else f"keys are {', '.join(there)}"
            return self.line(keys), f"there is no key {'.'.join(keys)!r}; {hint}"
        found = _found(error.get("input"))
        message = str(error["msg"]).removeprefix("Value error, ")
        expected = _EXPECTED.get(str(error["type"]))
        if expected:
            return self.line(keys), f"{'.'.join(keys)}: {expected} is expected, and {found} was found"
        if not keys or isinstance(error.get("input"), (dict, list)) or str(error.get("input")) in message:
            return self.line(keys), ": ".join(filter(None, (".".join(keys), message)))
        return self.line(keys), f"{'.'.join(keys)}: {message[:1].lower()}{message[1:]}, and {found} was found"


def _found(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, (list, dict)):
        return "a list" if isinstance(value, list) else "a mapping"
    return repr(value) if len(repr(value)) < 60 else f"{repr(value)[:60]}…"


def read_job_file(path: Path) -> JobFile:
    """Raises JobFileError for text that is no YAML mapping, and for keys that occur twice."""
    text = _read(path)
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)
    try:
        node = loader.get_single_node()
        if node is None:
            raise JobFileError(str(path), 0, "it is empty", "A job file needs at least `script:`.")
        if not isinstance(node, yaml.MappingNode):
            raise JobFileError(
                str(path),
                node.start_mark.line + 1,
                "a job file is a mapping: `key: value` lines, and this is none",
                _REMEDY,
            )
        lines = _lines_of(path, node)
        _keep_words(loader, node)
        values = loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        raise _not_yaml(path, text, error) from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise JobFileError(str(path), 0, f"it is not YAML: {one_line(str(error))}", _REMEDY) from None
    finally:
        loader.dispose()
    return JobFile(path, {str(key): value for key, value in values.items()}, lines)


def _read(path: Path) -> str:
    raw = b""
    try:
        raw = read_given(path)
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise JobFileError(str(path), line, f"it is not UTF-8 text (byte {error.start})", "Save it as UTF-8.") from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise JobFileError(
            str(path), 0, f"the job file cannot be read: {why}", "Name a file that exists and that you may read."
        ) from None


def _not_yaml(path: Path, text: str, error: yaml.MarkedYAMLError) -> JobFileError:
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark else 0
    written = text.splitlines()[line - 1] if 0 < line <= len(text.splitlines()) else ""
    if "\t" in written[: len(written) - len(written.lstrip())]:
        return JobFileError(str(path), line, "a tab begins the line", "YAML indents with spaces only.")
    if error.problem == "found unhashable key":
        return JobFileError(str(path), line, "a key is a list or a mapping", _REMEDY)
    return JobFileError(str(path), line, f"it is not YAML: {error.problem or error.context}", _REMEDY)


def _lines_of(path: Path, root: yaml.MappingNode) -> dict[Keys, int]:
    lines: dict[Keys, int] = {}
    doubled: list[Mistake] = []
    for keys, line in _keys(root, ()):
        if keys in lines:
            doubled.append((line, f"the key {'.'.join(keys)!r} is here again; it is in line {lines[keys]} already"))
        lines.setdefault(keys, line)
    if doubled:
        raise JobFile(path, {}, lines).error(doubled)
    return lines


def _keys(node: yaml.MappingNode, above: Keys) -> Iterator[tuple[Keys, int]]:
    """(path of a key, its line), two deep as job files are; so an alias that leads back into itself ends, too."""
    for key, value in node.value:
        keys = (*above, str(key.value))
        yield keys, key.start_mark.line + 1
        if isinstance(value, yaml.MappingNode) and not above:
            yield from _keys(value, keys)


def _keep_words(loader: Any, root: yaml.MappingNode) -> None:  # noqa: ANN401 -- one of two loaders
    """Keep plain words as written, three levels deep. Null stays null, and so do true and false of switches."""
    for key, value in root.value:
        below = _inner(value)
        below += [deeper for node in below for deeper in _inner(node)]
        keep = {"torchrun": _BOOL, "slurm": _BOOL, "args": "", "env": ""}.get(str(key.value), _NULL)
        for node in (key, value, *below):
            if isinstance(node, yaml.ScalarNode) and node.tag not in (keep, _MERGE):
                node.tag = loader.DEFAULT_SCALAR_TAG


def _inner(node: yaml.Node) -> list[yaml.Node]:
    inner = node.value if isinstance(node, (yaml.MappingNode, yaml.SequenceNode)) else []
    return [n for entry in inner for n in (entry if isinstance(entry, tuple) else (entry,))]
