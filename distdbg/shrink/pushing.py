"""Push a small model to the Hugging Face hub, as a private repository that nothing else is in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from distdbg.errors import DistdbgError, ToolMissing, UsageError, install_extra
from distdbg.plain_text import first_words

#: what the hub itself puts into a new repository
_OF_THE_HUB = {".gitattributes"}


def refuse_unpushable(repository: str) -> None:
    """Check before slow work that the hub knows the user, and that the repository is empty or does not exist."""
    hub = _hub()
    try:
        hub.utils.validate_repo_id(repository)
    except hub.errors.HFValidationError:
        raise UsageError(f"--push {repository}: it is no name of a repository", "Write OWNER/MODEL.") from None
    if hub.get_token() is None:
        raise UsageError("--push: there is no token of the hub", "Run `hf auth login`, or set HF_TOKEN.")
    api = hub.HfApi()
    try:
        api.whoami()
        there = set(api.list_repo_files(repository)) - _OF_THE_HUB if api.repo_exists(repository) else set()
    except Exception as error:
        raise UsageError(f"--push {repository}: the hub refuses it: {_short(error)}",
                         "Check the name, the network and your token.") from None  # fmt: skip
    if there:
        raise UsageError(f"--push {repository}: {len(there)} files are in it, such as {min(there)}",
                         "Name a repository that does not exist yet; nothing is overwritten.")  # fmt: skip


def push(folder: Path, repository: str) -> str:
    """Gives the address. Raises DistdbgError where the hub does not take it: the folder stays."""
    api = _hub().HfApi()
    try:
        made = api.create_repo(repository, private=True, exist_ok=True)
        api.upload_folder(repo_id=repository, folder_path=folder, commit_message="Add a small copy of a model")
    except Exception as error:
        raise DistdbgError(f"{folder} was written and could not be pushed: {_short(error)}",
                           f"Run `hf upload {repository} {folder}`.") from None  # fmt: skip
    return str(made)


def _short(error: Exception) -> str:
    return first_words(" ".join(str(error).split()), 160) or type(error).__name__


def _hub() -> Any:
    try:
        import huggingface_hub
        import huggingface_hub.errors
        import huggingface_hub.utils
    except ImportError:
        raise ToolMissing("--push needs huggingface_hub", f"Run {install_extra('shrink')}.") from None
    return huggingface_hub
