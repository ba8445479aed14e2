"""Open SRC as a person names it: a folder, a config.json, a URL, a model of the Hugging Face hub."""

from __future__ import annotations

import re
from pathlib import Path

from distdbg.errors import Refused, ToolMissing, UsageError, install_extra
from distdbg.plain_text import first_words
from distdbg.rundir import refuse_unreadable
from distdbg.shrink.checkpoint.source import CheckpointSource, Folder

_HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*(@[\w./-]+)?")


def open_source(name: str) -> CheckpointSource:
    """Raises UsageError where the name is nothing that can be read, Refused if it is a GGUF file, ToolMissing if it may
    not be read."""
    if re.match(r"https?://", name):
        from distdbg.shrink.checkpoint.http_source import Server

        return Server(name.removesuffix("config.json").rstrip("/") + "/")
    refuse_unreadable(name)
    path = Path(name)
    if path.is_dir():
        return Folder(path)
    if path.is_file() and path.suffix == ".gguf":
        raise Refused(
            f"{name} is a GGUF file: its tensors are packed in blocks and named as llama.cpp names them",
            "Name the model that it was converted from: a folder with safetensors, or its hub id.",
        )
    if path.is_file():
        return OneConfig(path)
    if _HUB_ID.fullmatch(name):
        return _hub(name)
    raise UsageError(f"{name} is no folder and no file here", "Name a model's folder or its config.json.")


class OneConfig(Folder):
    """A config file alone, with any name. The user named it, so it may be a link."""

    def __init__(self, path: Path) -> None:
        real = path.resolve()
        super().__init__(real.parent, where=str(path))
        self.config = real.name
        self._known = ["config.json"]

    def small(self, name: str) -> bytes | None:
        return super().small_at(self.config) if name == "config.json" else None


def _hub(name: str) -> CheckpointSource:
    """The cache where the whole model lies there; else the hub itself, by ranges."""
    from distdbg.shrink.checkpoint.http_source import Server

    try:
        import huggingface_hub as hub
    except ImportError:
        raise ToolMissing(f"{name} is no folder here, and huggingface_hub is missing", _INSTALL) from None
    model, _, revision = name.partition("@")
    try:
        cached = hub.try_to_load_from_cache(model, "config.json", revision=revision or None)
    except hub.errors.HFValidationError:
        raise UsageError(f"{name} is no folder here and no name of a model on the hub", "Write OWNER/MODEL.") from None
    if isinstance(cached, str):
        folder = Folder(Path(cached).parent, where=name)
        if any(n.endswith((".safetensors", ".bin")) for n in folder.files()):
            return folder
    try:
        info = hub.HfApi().model_info(model, revision=revision or None, timeout=15)
    except Exception as error:
        why = first_words(" ".join(str(error).split()), 160)
        raise UsageError(
            f"{name} is no folder here, not in the hub's cache, and the hub does not give it: {why}",
            "Check the name, the network and your token, or name a model's folder.",
        ) from None
    url = hub.hf_hub_url(model, "config.json", revision=info.sha).removesuffix("config.json")
    headers = {k: v for k, v in hub.utils.build_hf_headers().items() if isinstance(v, str)}
    return Server(url, headers, [s.rfilename for s in info.siblings or []])


_INSTALL = f"Run {install_extra('shrink')}."
