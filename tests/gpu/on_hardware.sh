#!/usr/bin/env bash
# Run the tests marked `one_gpu` on this machine's GPU and compare them with the simulated one. On an H200: 4 min 20 s.
#
#   tests/gpu/on_hardware.sh OUTPUT [--side box] [pytest's arguments]
#
# Needs: one NVIDIA GPU, a python3 that has torch 2.8 or later with CUDA, and no network. Packages that python3 lacks are
# taken from the wheels in the folder WHEELS (default: tests/gpu/wheels). To fill it on a machine with a network:
#   pip download --no-deps --only-binary=:all: --python-version 3.12 --platform manylinux_2_28_x86_64 \
#     --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 --platform manylinux1_x86_64 -d tests/gpu/wheels \
#     py-spy psutil nvidia-ml-py pydantic pydantic-core annotated-types typing-inspection typing-extensions click \
#     jinja2 markupsafe pyyaml rich markdown-it-py mdurl pygments pytest pluggy iniconfig packaging pytest-timeout \
#     pytest-xdist execnet hypothesis sortedcontainers
# Writes OUTPUT/check.json (every row, card, driver, versions), OUTPUT/check.md (the table) and OUTPUT/hardware/
# (evidence that the tests keep). --side box runs on the simulated GPU instead; `make gpu-box` builds it.
# Exit codes: those of tests/gpu/check.py.
set -euo pipefail

repository=$(cd "$(dirname "$0")/../.." && pwd)
wheels=${WHEELS:-$repository/tests/gpu/wheels}
if [ $# = 0 ] || [ "${1#-}" != "$1" ]; then
  echo "usage: tests/gpu/on_hardware.sh OUTPUT [--side box] [pytest's arguments]" >&2
  exit 2
fi
output=$1
shift
mkdir -p "$output"
output=$(cd "$output" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# An environment of its own that sees all packages of python3, also if python3 is in a virtual environment itself.
python3 -m venv --without-pip "$work/venv"
python=$work/venv/bin/python
site=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
python3 -c 'import sys; [print(f"import site; site.addsitedir({p!r})") for p in sys.path if p.endswith("-packages")]' \
  >"$site/zz_parent.pth"

missing=()
for wheel in "$wheels"/*.whl; do
  [ -e "$wheel" ] || continue
  name=$(basename "$wheel")
  "$python" -c 'import importlib.metadata as m, sys; m.version(sys.argv[1])' "${name%%-*}" 2>/dev/null || missing+=("$wheel")
done
pip=(python3 -m pip install --quiet --no-index --no-deps --no-cache-dir --target "$site")
if [ ${#missing[@]} -gt 0 ]; then "${pip[@]}" "${missing[@]}"; fi
# A copy: building leaves files beside the sources.
mkdir "$work/source"
(cd "$repository" && tar c --exclude=./.git --exclude='./.venv*' --exclude=./tests --exclude=./build . ) | tar x -C "$work/source"
mkdir -p "$work/source/tests/programs"
cp -r "$repository/tests/programs/guards" "$work/source/tests/programs/"
"${pip[@]}" --no-build-isolation "$work/source" "$work/source/gpu_box" 2>"$work/pip.log" || { cat "$work/pip.log" >&2; exit 1; }
rm -rf "$work/source"
cp "$site"/bin/* "$work/venv/bin/"  # --target leaves programs such as py-spy beside the packages

cd "$repository"
"$python" tests/gpu/check.py --one-gpu --output "$output" "$@"
