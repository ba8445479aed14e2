"""Names of functions and methods that write, move or remove files, each with the place and the name of its path."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

Does = Literal[
    "saves", "writes", "appends to", "removes", "moves", "logs to", "makes", "downloads", "lets a helper save",
    "lets a helper remove",
]  # fmt: skip
Places = dict[str, tuple[int, str]]

#: of functions and methods that save
SAVES: Places = {
    "torch.save": (1, "f"),
    "torch.jit.save": (1, "f"),
    "safetensors.torch.save_file": (1, "filename"),
    "safetensors.torch.save_model": (1, "filename"),
    "omegaconf.OmegaConf.save": (1, "f"),
    "save_pretrained": (0, "save_directory"),
}
#: what is most often no checkpoint, or no file that others read
WRITES: Places = {
    "numpy.save": (0, "file"), "numpy.savez": (0, "file"), "numpy.savez_compressed": (0, "file"),
    "numpy.savetxt": (0, "fname"), "joblib.dump": (1, "filename"), "torch.onnx.export": (2, "f"),
    "scipy.sparse.save_npz": (0, "file"), "scipy.io.savemat": (0, "file_name"),
}  # fmt: skip
#: pictures, films and sounds
PICTURES: Places = {
    "matplotlib.pyplot.savefig": (0, "fname"), "matplotlib.pyplot.imsave": (0, "fname"),
    "torchvision.utils.save_image": (1, "fp"), "torchvision.io.write_video": (0, "filename"),
    "cv2.imwrite": (0, "filename"), "imageio.imwrite": (0, "uri"), "imageio.imsave": (0, "uri"),
    "imageio.mimsave": (0, "uri"), "imageio.mimwrite": (0, "uri"),
    "torchaudio.save": (0, "uri"), "soundfile.write": (0, "file"), "scipy.io.wavfile.write": (0, "filename"),
}  # fmt: skip
METHODS_THAT_WRITE: Places = {
    "to_csv": (0, "path_or_buf"), "to_parquet": (0, "path"), "to_pickle": (0, "path"), "to_feather": (0, "path"),
    "to_json": (0, "path_or_buf"), "to_json_file": (0, "json_file_path"), "to_excel": (0, "excel_writer"),
    "to_hdf": (0, "path_or_buf"), "save_to_disk": (0, "dataset_path"), "save_weights": (0, "filepath"),
    "export_chrome_trace": (0, "path"), "export_stacks": (0, "path"),
    "write_text": (-1, ""), "write_bytes": (-1, ""),
}  # fmt: skip
MOVES: Places = {
    "shutil.copy": (1, "dst"), "shutil.copyfile": (1, "dst"), "shutil.copy2": (1, "dst"), "shutil.move": (1, "dst"),
    "shutil.copytree": (1, "dst"), "os.rename": (1, "dst"), "os.replace": (1, "dst"), "os.symlink": (1, "dst"),
    "os.link": (1, "dst"),
}  # fmt: skip
REMOVES = {"remove", "unlink", "rmtree"}
#: classes that write a log, by the last part of their names
LOGS: Places = {
    "FileHandler": (0, "filename"), "RotatingFileHandler": (0, "filename"), "SummaryWriter": (0, "log_dir"),
    "TimedRotatingFileHandler": (0, "filename"), "create_file_writer": (0, "logdir"),
}  # fmt: skip
DOWNLOADS: Places = {
    "urllib.request.urlretrieve": (1, "filename"), "urllib.urlretrieve": (1, "filename"),
    "torch.hub.download_url_to_file": (1, "dst"), "gdown.download": (1, "output"), "wget.download": (1, "out"),
    "torchvision.datasets.utils.download_url": (1, "root"),
    "torchvision.datasets.utils.download_and_extract_archive": (1, "download_root"),
}  # fmt: skip
MAKES = {"makedirs", "mkdir"}
BY_FULL_NAME: tuple[tuple[Does, Places], ...] = (
    ("saves", SAVES), ("writes", WRITES), ("writes", PICTURES), ("moves", MOVES),
    ("downloads", DOWNLOADS),
)  # fmt: skip

#: helpers by name
_HELPER = re.compile(
    r"^_?(?:save|store|write|dump)_?(?:the_?)?(?:\w*_)?(?:checkpoints?|ckpt|model|models|state|weights|snapshot|network|networks|"
    r"training_state|on_master)(?:_impl|_to_disk|_file)?$",
    re.IGNORECASE,
)
_REMOVER = re.compile(
    r"^_?(?:maybe_)?(?:clean|clear|remove|delete|prune|rotate|purge|rm)_?(?:up_)?(?:\w*_)?(?:checkpoints?|ckpts?|snapshots?|saves)$",
    re.IGNORECASE,
)
#: helpers whose name says that they write, where they are given a path: `copy_config_files(source, out_dir)`
_WRITER = re.compile(
    r"^_?(?:save|write|dump|export|store|record|copy)_(?!\w*(?:image|video|figure|plot|sample|audio|wav|log))\w+$"
)
#: and those that add to it: `update_summary(epoch, metrics, os.path.join(folder, "summary.csv"))`
_UPDATER = re.compile(
    r"^_?(?:update|append|plot|draw|log|print)_(?:\w*_)?"
    r"(?:summary|csv|tsv|results?|history|metrics?|curves?|report|config|cfg|args|json|yaml)$"
)
_CLEANER = re.compile(r"^_?(?:maybe_)?(?:clean|prune|rotate|purge)(?:_?up)?(?:_old)?(?:_(?:dirs?|files?|folders?))?$")
_LAST = {
    name.rpartition(".")[2]
    for its in (SAVES, WRITES, PICTURES, MOVES, LOGS, DOWNLOADS, METHODS_THAT_WRITE)
    for name in its
} | {*REMOVES, *MAKES, "savefig", "open", "File", "save", "basicConfig", "extractall"}
#: words of which a text that writes has at least one
WRITE_WORDS = re.compile(
    rf"^(?:{'|'.join(sorted(_LAST))})\($|"
    rf"^download$|{_HELPER.pattern[:-1]}\($|{_REMOVER.pattern[:-1]}\($|{_WRITER.pattern[:-1]}\($|{_CLEANER.pattern[:-1]}\($|"
    rf"{_UPDATER.pattern[:-1]}\($",
    re.IGNORECASE,
)


@lru_cache(maxsize=10_000)
def helps(last: str) -> tuple[bool, bool, bool]:
    """By its name: whether a helper saves, whether it removes, and whether only what is given a path does."""
    if _HELPER.match(last):
        return True, False, False
    if _REMOVER.match(last):
        return False, True, False
    if _WRITER.match(last) or _UPDATER.match(last):
        return True, False, True
    return False, _CLEANER.match(last) is not None, True
