"""The values of --on: auto, and the backends that are installed."""

from __future__ import annotations

import click

from distdbg.backend_names import AUTO, backend_names


class BackendChoice(click.Choice):  # type: ignore[type-arg]  # generic from click 8.2 on
    """Looks for the backends when it is asked for them: other commands do not wait for it."""

    def __init__(self) -> None:
        self.case_sensitive = True

    @property
    def choices(self) -> tuple[str, ...]:  # type: ignore[override]
        return (AUTO, *backend_names())
