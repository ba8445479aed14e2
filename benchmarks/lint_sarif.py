"""Is what `distdbg lint --sarif` prints SARIF 2.1.0, by the official schema?

    python benchmarks/lint_sarif.py SCHEMA [PATHS…]

SCHEMA is sarif-schema-2.1.0.json of github.com/oasis-tcs/sarif-spec; the paths are those of this package's own tests of
lint, if none are named. Not kept here: it is OASIS's, under terms of their own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import jsonschema

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("schema", type=Path, nargs="?")
    parser.add_argument("paths", nargs="*", default=[str(ROOT / "tests" / "lint")])
    options = parser.parse_args()
    if options.schema is None:
        print("lint_sarif: needs the official schema; skipped")
        return 0
    command = [sys.executable, "-m", "distdbg", "lint", "--sarif", *options.paths]
    log = json.loads(subprocess.run(command, capture_output=True, text=True, check=False).stdout)
    schema = json.loads(options.schema.read_text(encoding="utf-8"))
    validator = jsonschema.validators.validator_for(schema)(schema)
    errors = list(validator.iter_errors(log))
    for error in errors[:10]:
        print("/".join(map(str, error.absolute_path)), error.message[:200])
    run = log["runs"][0]
    skipped = len(run["invocations"][0]["toolExecutionNotifications"])
    which = schema.get("id", options.schema)
    print(f"{len(run['results'])} results, {skipped} notifications: {len(errors)} errors against {which}")
    return bool(errors)


if __name__ == "__main__":
    sys.exit(main())
