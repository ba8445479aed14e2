"""The states of the random number generators that a script can use; nothing is drawn."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

#: This is only loaded once torch is, and may not be what loads it.
torch: Any = sys.modules["torch"]


def random_states() -> dict[str, Any]:
    """Those of libraries that are loaded: torch's own, CUDA's current device's, Python's and NumPy's. About 15 us."""
    states: dict[str, Any] = {"torch": torch.get_rng_state()}
    if torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing():
        states["cuda"] = torch.cuda.get_rng_state()
    if "random" in sys.modules:
        states["python"] = sys.modules["random"].getstate()
    if "numpy.random" in sys.modules:
        states["numpy"] = sys.modules["numpy"].random.get_state()
    return states


def plain_states(states: Mapping[str, Any]) -> dict[str, Any]:
    """As plain data, NumPy's array as a list of numbers."""
    return {name: (state[0], state[1].tolist(), *state[2:]) if name == "numpy" else state
            for name, state in states.items()}  # fmt: skip
