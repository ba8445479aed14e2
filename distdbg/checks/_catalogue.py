"""Every finding that distdbg can give, with its documentation: what `distdbg findings` shows."""

from __future__ import annotations

from distdbg.checks import all_checks, known_error
from distdbg.model import FindingDoc


def documented() -> dict[str, FindingDoc]:
    """id -> documentation, by id. Where several checks give one id, the check that bears its name documents it."""
    found: dict[str, FindingDoc] = {}
    for check in all_checks():
        for doc in check.docs:
            if doc.id not in found or check.name == doc.id.replace("-", "_"):
                found[doc.id] = doc
    messages = {doc.id: doc for doc in known_error.docs()}
    return dict(sorted((messages | found).items()))
