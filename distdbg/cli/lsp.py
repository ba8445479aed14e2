"""Serve editors over the language server protocol with pygls, an optional extra."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from distdbg import __version__
from distdbg.errors import ToolMissing, install_extra
from distdbg.lint.in_editor import Mark, QuickFix, marks


def serve(wanted: Collection[str], *, everything: bool) -> None:
    """On standard input and output, until the editor ends it. Raises ToolMissing without pygls."""
    server(wanted, everything=everything).start_io()


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

    def look(given: Any) -> None:  # noqa: ANN401
        document = made.workspace.get_text_document(given.text_document.uri)
        its = [m for m in marks(document.path, document.source, wanted) if everything or m.severity != "info"]
        shown[document.uri] = [(_diagnostic(types, mark), mark) for mark in its]
        said = types.PublishDiagnosticsParams(document.uri, [d for d, _ in shown[document.uri]], document.version)
        made.text_document_publish_diagnostics(said)

    def close(given: Any) -> None:  # noqa: ANN401
        shown.pop(given.text_document.uri, None)
        made.text_document_publish_diagnostics(types.PublishDiagnosticsParams(given.text_document.uri, []))

    def fixes(given: Any) -> list[Any]:  # noqa: ANN401
        uri, first, last = given.text_document.uri, given.range.start.line, given.range.end.line
        touched = [(d, mark) for d, mark in shown.get(uri, []) if first <= mark.line <= last]
        return [_action(types, uri, diagnostic, fix) for diagnostic, mark in touched for fix in mark.fixes]

    made.feature(types.TEXT_DOCUMENT_DID_OPEN)(look)
    made.feature(types.TEXT_DOCUMENT_DID_CHANGE)(look)
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
