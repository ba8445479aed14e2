"""The key `profile` of `distdbg profile --json`: microseconds of a typical step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from distdbg.evidence.trace.profile import CostlyPlace, RankProfile


def profile_plain(profiles: Sequence[RankProfile]) -> list[dict[str, Any]]:
    """An entry a rank."""
    return [_profile(profile) for profile in profiles]


def _profile(profile: RankProfile) -> dict[str, Any]:
    return {
        "path": profile.path,
        "rank": profile.rank,
        "host": profile.host or None,
        "steps": profile.steps,
        "first": profile.first,
        "last": profile.last,
        "steps_by": profile.by,
        "step_us": profile.step_us,
        "parts_us": dict(profile.parts),
        "communication_hidden_us": profile.hidden_us,
        "loader": profile.loader or None,
        "gpu": asdict(profile.device) if profile.device else None,
        "nvml": asdict(profile.watched) if profile.watched else None,
        "operators": [asdict(row) for row in profile.operators],
        "kernels": [asdict(row) for row in profile.kernels],
        "places": [_place(costly) for costly in profile.costly],
        "unknown": [{"what": what, "because": because} for what, because in profile.unknown],
    }


def _place(costly: CostlyPlace) -> dict[str, Any]:
    place = costly.place
    return {
        "kind": costly.kind,
        "file": place.file if place else None,
        "lines": list(costly.lines),
        "function": place.function if place else None,
        "calls": place.callee or None if place else None,
        "what": costly.what or None,
        "times": costly.calls,
        "host_us": costly.us,
        "gain_us": costly.gain_us,
    }
