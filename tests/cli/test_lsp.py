"""The language server as an editor starts it: text in, marks and quick fixes out, and a clean end."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
from lsprotocol import types
from pygls.lsp.client import LanguageClient

TEXT = (Path(__file__).parents[1] / "lint" / "clip-before-unscale" / "bad_plain.py").read_text(encoding="utf-8")
TEXT = TEXT.replace("  # expect: clip-before-unscale", "")
URI = "file:///work/my%20train.py"


class Editor:
    def __init__(self) -> None:
        self.client = LanguageClient("test", "1")
        self.said: asyncio.Queue[types.PublishDiagnosticsParams] = asyncio.Queue()

        @self.client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def published(given: types.PublishDiagnosticsParams) -> None:
            self.said.put_nowait(given)

    async def start(self) -> None:
        await self.client.start_io(sys.executable, "-m", "distdbg", "lint", "--lsp")
        await self.client.initialize_async(types.InitializeParams(capabilities=types.ClientCapabilities()))
        self.client.initialized(types.InitializedParams())
        document = types.TextDocumentItem(URI, "python", 1, TEXT)
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(document))

    def change(self, version: int, text: str) -> None:
        document = types.VersionedTextDocumentIdentifier(version=version, uri=URI)
        whole = types.TextDocumentContentChangeWholeDocument(text)
        self.client.text_document_did_change(types.DidChangeTextDocumentParams(document, [whole]))

    async def fixes(self, line: int, only: list[str] | None = None) -> list[types.CodeAction]:
        place = types.Range(types.Position(line, 0), types.Position(line, 0))
        context = types.CodeActionContext([], only=only)
        asked = types.CodeActionParams(types.TextDocumentIdentifier(URI), place, context)
        return list(await self.client.text_document_code_action_async(asked) or ())

    async def end(self) -> int | None:
        await self.client.shutdown_async(None)
        self.client.exit(None)
        process = self.client._server
        assert process is not None
        await process.wait()
        await self.client.stop()
        return process.returncode


def test_from_open_to_exit() -> None:
    async def session() -> None:
        editor = Editor()
        await editor.start()
        (mark,) = (first := await editor.said.get()).diagnostics
        assert (first.uri, first.version, mark.code) == (URI, 1, "clip-before-unscale")
        line = mark.range.start.line
        assert [fix.is_preferred for fix in await editor.fixes(line)] == [True, False]
        assert await editor.fixes(line, ["source.organizeImports"]) == []
        editor.change(2, TEXT + "x = (")  # in the middle of typing
        assert await editor.fixes(line) == []  # its lines may have moved
        assert (await editor.said.get()).diagnostics == ()
        for version in range(3, 9):  # faster than anybody types
            editor.change(version, TEXT + f"x = {version}\n")
        last = await editor.said.get()
        assert (last.version, [d.code for d in last.diagnostics]) == (8, ["clip-before-unscale"])
        editor.client.text_document_did_close(types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(URI)))
        assert (await editor.said.get()).diagnostics == ()
        assert await editor.end() == 0

    asyncio.run(session())


@pytest.mark.parametrize("digits", [13, 20, 5000])
def test_message_of_impossible_length_is_one_sentence(digits: int, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "distdbg", "lint", "--lsp"]
    text = f"Content-Length: {'9' * digits}\r\n\r\n{{}}"
    done = subprocess.run(command, cwd=tmp_path, input=text, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (5, "", 2)
    assert "Content-Length" in done.stderr and "Traceback" not in done.stderr


def test_editor_that_goes_while_a_text_is_looked_at_leaves_no_traceback(tmp_path: Path) -> None:
    document = {"uri": URI, "languageId": "python", "version": 1, "text": TEXT * 40}
    messages = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"capabilities": {}}},
        {"jsonrpc": "2.0", "method": "textDocument/didOpen", "params": {"textDocument": document}},
    ]
    bodies = [json.dumps(message) for message in messages]
    command = [sys.executable, "-m", "distdbg", "lint", "--lsp"]
    text = "".join(f"Content-Length: {len(body)}\r\n\r\n{body}" for body in bodies)
    done = subprocess.run(command, cwd=tmp_path, input=text, capture_output=True, text=True, timeout=60)
    assert "Traceback" not in done.stderr, done.stderr
