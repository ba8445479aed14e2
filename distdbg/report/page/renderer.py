"""The renderer for a page: one file, no network, and everything that a rank printed is escaped.

A command whose page has more than a document extends base.html and calls `render_page`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from distdbg.evidence.rank_set import RankSet
from distdbg.plain_text import clean
from distdbg.report.document import Block, Cell, Document, StackPicture
from distdbg.report.page.picture_page import picture_values

if TYPE_CHECKING:
    from jinja2 import Environment

_MOST_FINDINGS = 60


@dataclass(frozen=True)
class PageRenderer:
    def render(self, document: Document) -> str:
        return render_page(
            "document.html",
            document=document,
            report=document.report,
            title=document.title or "distdbg report",
            causes=document.causes[:_MOST_FINDINGS],
            explained=document.explained[:_MOST_FINDINGS],
            summaries=[section for section in document.sections if not section.page_only],
            details=[section for section in document.sections if section.page_only],
        )


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
    made.filters |= {"ranks": _ranks, "cell": _cell, "macro": _macro, "values_of": _values_of}
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
