"""Render a document as Markdown for a ticket: the text report in a block of code, after the command."""

from __future__ import annotations

import re

from distdbg.plain_text import one_line
from distdbg.report.document import Document
from distdbg.report.text.renderer import TextRenderer


def ticket(document: Document) -> str:
    head = [f"$ {one_line(document.command)}"] if document.command else []
    head += [f"# {one_line(words)}" for words in (document.started, document.folder) if words]
    text = "\n".join([*head, *([""] if head else []), TextRenderer().render(document)])
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}text\n{text}\n{fence}\n"
