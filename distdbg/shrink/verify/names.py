"""What a model calls its images, videos and sounds: mostly `pixel_values`, here and there `image_pixel_values`."""

from __future__ import annotations

from typing import Any

#: main inputs that are sounds: as spectra, and as samples
SOUNDS = ("input_features", "input_values")
#: modality -> what its main input is called; some models put a word before it
MAIN = {"image": ("pixel_values",), "video": ("pixel_values_videos",), "audio": SOUNDS}


def called(takes: set[str], modality: str) -> dict[str, str]:
    """What inputs are made under -> this forward's own name for it.

    A video is made as an image of several frames is (`image_grid_thw` for `video_grid_thw`); what is said of images is
    no part of it.
    """
    if modality == "video":
        return {_as_an_image(name): name for name in takes if "video" in name}
    longer = {main: name for main in MAIN[modality] for name in takes if name.endswith(f"_{main}")}
    return longer | {name: name for name in takes}


def renamed(made: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """What was made, under the forward's own names."""
    return {names.get(name, name): value for name, value in made.items()}


def _as_an_image(name: str) -> str:
    return name.replace("pixel_values_videos", "pixel_values").replace("video_", "image_")
