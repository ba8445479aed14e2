"""The renderer for a page: one file, no network, and everything that a rank printed is escaped.

A command whose page has more than a document extends base.html and calls `render_page`.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from distdbg.evidence.rank_set import RankSet
from distdbg.model import Finding
from distdbg.plain_text import clean
from distdbg.report.document import Block, Cell, Document, StackPicture
from distdbg.report.page.picture_page import picture_values
from distdbg.report.text.renderer import ticket
from distdbg.wording import counted

if TYPE_CHECKING:
    from jinja2 import Environment

_MOST_FINDINGS = 60


@dataclass(frozen=True)
class PageRenderer:
    def render(self, document: Document) -> str:
        causes, explained = document.causes[:_MOST_FINDINGS], document.explained[:_MOST_FINDINGS]
        anchored = with_anchors([*causes, *explained])
        return render_page(
            "document.html",
            document=document,
            report=document.report,
            title=document.title or "distdbg report",
            causes=anchored[: len(causes)],
            explained=anchored[len(causes) :],
            ticket=ticket(document),
            **script_values("ticket.js"),
            summaries=[section for section in document.sections if not section.page_only],
            details=[section for section in document.sections if section.page_only],
        )


def with_anchors(findings: Iterable[Finding]) -> list[tuple[str, Finding]]:
    """Each with the fragment of its address on the page: `rank-killed`, a second one `rank-killed-2`."""
    seen: Counter[str] = Counter()
    found = []
    for finding in findings:
        seen[finding.id] += 1
        found.append((finding.id if seen[finding.id] == 1 else f"{finding.id}-{seen[finding.id]}", finding))
    return found


@lru_cache
def script_values(name: str) -> dict[str, str]:
    """A script of this package, and the page's policy for it: by its hash, so that no text can become another."""
    from markupsafe import Markup

    script = (files("distdbg.report") / "templates" / name).read_text(encoding="utf-8").strip()
    hashed = b64encode(sha256(script.encode()).digest()).decode()
    return {"script": Markup(script), "hash": Markup(f"; script-src 'sha256-{hashed}'")}


def render_page(template: str, **values: Any) -> str:  # noqa: ANN401
    """A template of this package with its values; every string is cleaned of controls, then escaped."""
    return environment().get_template(template).render(**values)


@lru_cache(maxsize=1)
def environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    made = Environment(
        loader=PackageLoader("distdbg.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value,
    )
    made.filters |= {"ranks": _ranks, "cell": _cell, "macro": _macro, "values_of": _values_of, "counted": counted}
    return made


def _ranks(ranks: Sequence[int], most: int) -> str:
    return RankSet.of(ranks).text(most)


def _cell(cell: Cell | str) -> Cell:
    return Cell(cell) if isinstance(cell, str) else cell


def _macro(block: Block) -> str:
    """The name of the macro that draws a block: rank_grid for RankGrid."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", type(block).__name__).lower()


def _values_of(block: StackPicture) -> Mapping[str, Any]:
    return picture_values(block.picture)
