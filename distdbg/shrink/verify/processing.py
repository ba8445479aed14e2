"""Verify that transformers loads the processor beside the small model, and that what it is for goes through it."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from distdbg.shrink.probe.building import in_short
from distdbg.shrink.verify.kept import PASS

#: files of processors: of several modalities, of images or sounds, of videos
_FILES = ("processor_config.json", "preprocessor_config.json", "video_preprocessor_config.json")
_SIDE, _FRAMES, _SECONDS = 64, 4, 1
#: as transformers says it of a package that a processor is made with
_REQUIRES = re.compile(r"requires the (\w+) library")


def has_processor(folder: str) -> bool:
    return any(Path(folder, name).is_file() for name in _FILES)


def try_processor(folder: str, trust: bool) -> str:
    """`pass`, with what went through it, or `not run, because …`: the source's would not load, either."""
    import transformers

    try:
        processor = transformers.AutoProcessor.from_pretrained(folder, local_files_only=True, trust_remote_code=trust)
    except Exception as error:
        why = _missing(error, folder) or f"transformers does not load the processor: {in_short(error)}"
        return f"not run, because {why}"
    passed: list[str] = []
    for what, part, given in _parts(processor):
        try:
            part(given, return_tensors="np")
        except Exception as error:
            why = _missing(error, folder) or f"{what} does not go through the processor: {in_short(error)}"
            return f"not run, because {why}"
        passed.append(what)
    through = ", ".join([*passed[:-2], " and ".join(passed[-2:])])
    return f"{PASS}; {type(processor).__name__}" + (f", with {through}" if passed else "")


def _parts(processor: Any) -> Iterator[tuple[str, Any, Any]]:
    """What a part of it is given, the part, and that."""
    import numpy as np

    images: Any = getattr(processor, "image_processor", None)
    videos: Any = getattr(processor, "video_processor", None)
    sounds: Any = getattr(processor, "feature_extractor", None)
    if images is None and videos is None and sounds is None:  # it is one itself
        if hasattr(processor, "sample_frames"):
            videos = processor
        elif "pixel_values" in getattr(processor, "model_input_names", ()):
            images = processor
        else:
            sounds = processor
    if images is not None:
        yield "an image", images, np.full((_SIDE, _SIDE, 3), 128, dtype=np.uint8)
    if videos is not None:
        # all frames: which of them are taken may depend on how long the video is, which nothing says of this one
        every = partial(videos, do_sample_frames=False)
        yield "a video", every, np.full((_FRAMES, _SIDE, _SIDE, 3), 128, dtype=np.uint8)
    if hasattr(sounds, "sampling_rate"):
        rate = sounds.sampling_rate
        silence = np.zeros(rate * _SECONDS, dtype=np.float32)
        yield "a sound", partial(sounds, sampling_rate=rate), silence


def _missing(error: Exception, folder: str) -> str:
    """Which package is not installed, where that is why."""
    if importlib.util.find_spec("PIL") is None and any("image" in text for text in _texts(folder)):
        return "pillow is not installed"  # transformers may say anything then
    if not isinstance(error, ImportError):
        return ""
    if named := _REQUIRES.search(str(error)):
        return f"{named[1].lower()} is not installed"
    return f"{error.name} is not installed" if error.name else f"a package is missing: {in_short(error)}"


def _texts(folder: str) -> Iterator[str]:
    for path in (Path(folder, name) for name in _FILES):
        if path.is_file():
            yield path.read_text(encoding="utf-8", errors="replace").lower()
