"""Marks for editors: places in UTF-16, what --fix would insert, comments that silence; and the server itself."""

from __future__ import annotations

from pathlib import Path

from distdbg.cli.lsp import server
from distdbg.lint.in_editor import marks
from distdbg.lint.linting import lint_text

TEXT = (Path(__file__).parent / "clip-before-unscale" / "bad_plain.py").read_text(encoding="utf-8")
TEXT = TEXT.replace("  # expect: clip-before-unscale", "")


def with_fix(text: str, line: int, column: int, inserted: str) -> str:
    lines = text.splitlines(keepends=True)
    lines[line] = lines[line][:column] + inserted + lines[line][column:]
    return "".join(lines)


def test_a_quick_fix_mends_what_it_marks() -> None:
    (mark,) = [m for m in marks("train.py", TEXT) if m.id == "clip-before-unscale"]
    assert TEXT.splitlines()[mark.line][mark.begin : mark.end].startswith("torch.nn.utils.clip")
    certain = [fix for fix in mark.fixes if fix.certain]
    assert len(certain) == 1
    mended = with_fix(TEXT, certain[0].line, certain[0].column, certain[0].text)
    assert "clip-before-unscale" not in {f.id for f in lint_text("train.py", mended).findings}


def test_a_comment_silences_and_columns_are_those_of_utf_16() -> None:
    text = TEXT.replace("1.0)", "1.0); '\U0001d4c2'")
    (mark,) = [m for m in marks("train.py", text) if m.id == "clip-before-unscale"]
    line = text.splitlines()[mark.line]
    assert mark.end == len(line) + line.count("\U0001d4c2") > len(line)
    (mark,) = [m for m in marks("train.py", TEXT) if m.id == "clip-before-unscale"]
    (silence,) = [fix for fix in mark.fixes if not fix.certain]
    silenced = with_fix(TEXT, silence.line, silence.column, silence.text)
    assert "clip-before-unscale" not in {f.id for f in lint_text("train.py", silenced).findings}


def test_no_mark_where_nothing_can_be_read() -> None:
    assert marks("train.py", "def (:") == ()


def test_the_server_knows_files_and_fixes() -> None:
    made = server({"clip-before-unscale"}, everything=False)
    assert {"textDocument/didOpen", "textDocument/didChange", "textDocument/codeAction"} <= set(
        made.protocol.fm.features
    )
