"""Run the tests of this folder on the GPU box and on this machine's GPUs; print one table of what differs.

    make gpu-check              or: python tests/gpu/check.py [--output FOLDER] [pytest's arguments]
    python tests/gpu/check.py --one-gpu --output FOLDER                  tests marked one_gpu, on hardware alone
    python tests/gpu/check.py --one-gpu --output FOLDER --side box       the same on the GPU box alone

The table compares the outcome of each test and each figure that a test wrote. Figures with "(time)" in their name are
printed and not compared: a box has no times of a device. With --one-gpu the box's side is read from one_gpu_box.json,
which `--side box` writes to FOLDER. FOLDER also gets check.json, check.md and what the tests kept.

Exit codes: 0 nothing differs; 3 there is nothing to compare (it prints why, and runs no test); 10 rows differ or a test
failed. `make` itself ends with 2 in place of 3 and 10, and prints them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from pathlib import Path

HERE = Path(__file__).parent
BOX, HARDWARE = "box", "hardware"
#: The box's rows of the tests marked one_gpu, with the torch that gave them.
BOX_FIGURES = HERE / "one_gpu_box.json"
#: Relative difference of a figure that counts as the same.
TOLERANCE = 0.02
NOT_COMPARED = "(time)"
NO_GPU, DIFFERS = 3, 10
#: On hardware no test begins after CHECK_LIMIT_S, and none takes longer than TEST_LIMIT_S.
CHECK_LIMIT_S, TEST_LIMIT_S = 340, 100

Rows = dict[str, object]


def why_no_gpu() -> str:
    """Return why the tests cannot run on this machine's GPUs; "" if they can."""
    if shutil.which("nvidia-smi") is None:
        return "nvidia-smi was not found: NVIDIA's driver is not installed on this machine"
    import torch

    if torch.version.cuda is None:
        return f"torch {torch.__version__} in {sys.prefix} is built without CUDA: install torch with CUDA there"
    return "" if torch.cuda.is_available() else "torch finds no GPU: `nvidia-smi` shows those of the driver"


def run(side: str, folder: Path, arguments: Sequence[str], *, one_gpu: bool) -> Rows:
    """Run pytest on one side; return the outcome of each test and the value of each figure by name."""
    figures, junit = folder / f"{side}.jsonl", folder / f"{side}.xml"
    for old in (figures, junit):
        old.unlink(missing_ok=True)
    # In CI a skip is a failure, and on hardware the planted faults are skipped.
    env = {name: value for name, value in os.environ.items() if name != "CI"}
    env |= {"DISTDBG_GPUS": side, "DISTDBG_GPU_FIGURES": str(figures)}
    chosen = ["-m", "one_gpu"] if one_gpu else []
    if one_gpu and side == HARDWARE:
        chosen += [f"--session-timeout={CHECK_LIMIT_S}", f"--timeout={TEST_LIMIT_S}"]
    command = [sys.executable, "-m", "pytest", "-q", f"--junit-xml={junit}", *chosen, *arguments]
    if not any(argument.startswith("tests/") for argument in arguments):
        command.append(str(HERE))
    subprocess.run(command, env=env, check=False)
    rows: Rows = {}
    for case in ET.parse(junit).iter("testcase"):
        problem = next((child.tag for child in case if child.tag in ("failure", "error", "skipped")), "passed")
        rows[case.attrib["name"]] = problem
        rows[f"{case.attrib['name']}: seconds {NOT_COMPARED}"] = float(case.attrib["time"])
    for line in figures.read_text().splitlines() if figures.exists() else ():
        written = json.loads(line)
        rows[f"{written['test']}: {written['figure']}"] = written["value"]
    return rows


def differs(a: object, b: object) -> bool:
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return abs(a - b) > TOLERANCE * max(abs(a), abs(b))
    return a != b


def describe_machine() -> dict[str, str]:
    """Return card, driver and versions, as far as this machine has them."""
    import torch

    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    card = ""
    if shutil.which(query[0]):
        card = subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()
    versions = {"python": platform.python_version(), "torch": torch.__version__, "kernel": platform.release()}
    return {"card and driver": card, **versions, "CUDA": str(torch.version.cuda)}


def compare(sides: Mapping[str, Rows]) -> list[tuple[str, str, str, str]]:
    """Return (row, box, hardware, "differs" or "") for each row of either side."""
    box, hardware = sides.get(BOX, {}), sides.get(HARDWARE, {})
    table = []
    for row in sorted(box.keys() | hardware.keys()):
        a, b = box.get(row, "-"), hardware.get(row, "-")
        compared = NOT_COMPARED not in row and "skipped" not in (a, b)
        table.append((row, str(a), str(b), "differs" if compared and differs(a, b) else ""))
    return table


def write_table(folder: Path, machine: Mapping[str, str], table: Sequence[tuple[str, str, str, str]]) -> str:
    lines = [", ".join(f"{name} {value}" for name, value in machine.items()), ""]
    lines += ["| test: figure | box | hardware | |", "|---|---|---|---|"]
    lines += [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in table]
    text = "\n".join(lines) + "\n"
    (folder / "check.md").write_text(text)
    rows = [dict(zip(("row", BOX, HARDWARE, "differs"), row, strict=True)) for row in table]
    (folder / "check.json").write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n")
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="keep figures, tables and evidence in this folder")
    parser.add_argument("--one-gpu", action="store_true", help="only tests that one GPU can show")
    parser.add_argument("--side", choices=(BOX, HARDWARE), help="run on this side alone")
    options, arguments = parser.parse_known_args()
    side = options.side or (HARDWARE if options.one_gpu else None)
    if side != BOX and (reason := why_no_gpu()):
        print(f"nothing to compare: {reason}.", file=sys.stderr)
        print("`pytest tests/gpu` runs the tests on simulated GPUs.", file=sys.stderr)
        return NO_GPU
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.output or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        sides = {
            one: run(one, folder, arguments, one_gpu=options.one_gpu) for one in ([side] if side else (BOX, HARDWARE))
        }
        if side == HARDWARE and options.one_gpu:
            sides[BOX] = json.loads(BOX_FIGURES.read_text())["rows"] if BOX_FIGURES.exists() else {}
        if side == BOX:
            rows = {row: value for row, value in sides[BOX].items() if NOT_COMPARED not in row}
            written = {"machine": describe_machine(), "rows": rows}
            (folder / BOX_FIGURES.name).write_text(json.dumps(written, indent=1) + "\n")
        table = compare(sides)
        print(write_table(folder, describe_machine(), table))
    failed = [row for row, outcome in sides.get(side or HARDWARE, {}).items() if outcome in ("failure", "error")]
    count = sum(bool(different) for *_, different in table) if len(sides) > 1 else 0
    print(f"{count} of {len(table)} rows differ; {len(failed)} tests failed")
    return DIFFERS if count or failed else 0


if __name__ == "__main__":
    sys.exit(main())
