"""Every finding that distdbg can give, with its documentation: what `distdbg findings` shows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from distdbg.checks import all_checks, known_error
from distdbg.model import FindingDoc


def documented(rules: Iterable[FindingDoc] = ()) -> dict[str, FindingDoc]:
    """id -> documentation, by id. Where several checks give one id, the check that bears its name documents it.

    `rules` are the ids that lint finds without a run: where a check knows the id too, how both see it is told.
    """
    found: dict[str, FindingDoc] = {}
    for check in all_checks():
        for doc in check.docs:
            if doc.id not in found or check.name == doc.id.replace("-", "_"):
                found[doc.id] = doc
    messages = {doc.id: doc for doc in known_error.docs()}
    found = messages | found
    for doc in rules:
        known = found.get(doc.id)
        how = f"{known.how_seen} By `distdbg lint`, before the run: {doc.how_seen}" if known else doc.how_seen
        found[doc.id] = replace(known or doc, how_seen=how)
    return dict(sorted(found.items()))
