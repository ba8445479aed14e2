"""Serve editors over the language server protocol with pygls, an optional extra."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from distdbg import __version__
from distdbg.collect.files.linted_files import cpu_limit
from distdbg.errors import EvidenceUnreadable, ToolMissing, install_extra
from distdbg.lint.in_editor import Mark, QuickFix, marks

#: seconds without a change after which a text is looked at: a person who types makes a change each 0.1 s to 0.2 s
_PAUSE = 0.2


def serve(wanted: Collection[str], *, everything: bool) -> None:
    """On standard input and output, until the editor ends it. Raises ToolMissing without pygls, EvidenceUnreadable."""
    made = server(wanted, everything=everything)
    streams = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")  # pygls closes them; ours stay open
    try:
        made.start_io(*streams)
    except (ValueError, OverflowError, MemoryError):
        raise EvidenceUnreadable(
            "standard input is not the language server protocol: the Content-Length of a message is no length",
            "Let an editor start `distdbg lint --lsp`; for a file on standard input use --stdin.",
        ) from None


def server(wanted: Collection[str], *, everything: bool) -> Any:  # noqa: ANN401 -- pygls is optional
    try:
        from lsprotocol import types
        from pygls.lsp.server import LanguageServer
    except ImportError:
        raise ToolMissing(
            "the language server needs pygls, which is not installed",
            f"Install it ({install_extra('lsp')}), or let the editor call `distdbg lint --stdin`.",
        ) from None
    made = LanguageServer("distdbg", __version__, text_document_sync_kind=types.TextDocumentSyncKind.Full)
    shown: dict[str, list[tuple[Any, Mark]]] = {}

    newest: dict[str, object] = {}
    one_thread = ThreadPoolExecutor(1)  # the editor's other requests are answered meanwhile

    async def look(given: Any, pause: float) -> None:  # noqa: ANN401
        uri, this = given.text_document.uri, object()
        newest[uri] = this
        shown.pop(uri, None)  # their lines may have moved: no quick fix is offered until the text was looked at
        await asyncio.sleep(pause)
        if newest.get(uri) is not this:
            return  # changed again, or closed
        document = made.workspace.get_text_document(uri)
        version, loop = document.version, asyncio.get_running_loop()
        path, text = document.path, document.source
        try:
            found = await loop.run_in_executor(one_thread, lambda: marks(path, text, wanted, cpu_limit()))
        except asyncio.CancelledError:  # the editor has gone
            return
        if newest.get(uri) is this:
            its = [m for m in found if everything or m.severity != "info"]
            shown[uri] = [(_diagnostic(types, mark), mark) for mark in its]
            said = types.PublishDiagnosticsParams(uri, [d for d, _ in shown[uri]], version)
            made.text_document_publish_diagnostics(said)

    async def opened(given: Any) -> None:  # noqa: ANN401
        await look(given, 0)

    async def changed(given: Any) -> None:  # noqa: ANN401
        await look(given, _PAUSE)

    def close(given: Any) -> None:  # noqa: ANN401
        newest.pop(given.text_document.uri, None)
        shown.pop(given.text_document.uri, None)
        made.text_document_publish_diagnostics(types.PublishDiagnosticsParams(given.text_document.uri, []))

    def fixes(given: Any) -> list[Any]:  # noqa: ANN401
        only = given.context.only
        if only is not None and types.CodeActionKind.QuickFix not in only:
            return []  # `source.organizeImports`, on every save
        uri, first, last = given.text_document.uri, given.range.start.line, given.range.end.line
        touched = [(d, mark) for d, mark in shown.get(uri, []) if first <= mark.line <= last]
        return [_action(types, uri, diagnostic, fix) for diagnostic, mark in touched for fix in mark.fixes]

    made.feature(types.TEXT_DOCUMENT_DID_OPEN)(opened)
    made.feature(types.TEXT_DOCUMENT_DID_CHANGE)(changed)
    made.feature(types.TEXT_DOCUMENT_DID_CLOSE)(close)
    kinds = types.CodeActionOptions(code_action_kinds=[types.CodeActionKind.QuickFix])
    made.feature(types.TEXT_DOCUMENT_CODE_ACTION, kinds)(fixes)
    return made


def _diagnostic(types: Any, mark: Mark) -> Any:  # noqa: ANN401
    severities = types.DiagnosticSeverity
    return types.Diagnostic(
        types.Range(types.Position(mark.line, mark.begin), types.Position(mark.line, mark.end)),
        mark.message,
        {"error": severities.Error, "warning": severities.Warning}.get(mark.severity, severities.Information),
        code=mark.id,
        source="distdbg",
    )


def _action(types: Any, uri: str, diagnostic: Any, fix: QuickFix) -> Any:  # noqa: ANN401
    place = types.Position(fix.line, fix.column)
    edit = types.TextEdit(types.Range(place, place), fix.text)
    return types.CodeAction(
        fix.title,
        types.CodeActionKind.QuickFix,
        [diagnostic],
        is_preferred=fix.certain,
        edit=types.WorkspaceEdit(changes={uri: [edit]}),
    )
