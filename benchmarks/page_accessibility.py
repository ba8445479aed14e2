"""Measure how accessible report pages are: Lighthouse's score of each page, and what it finds wrong.

    npm install --prefix /tmp/lighthouse lighthouse@12.2.3
    export PATH=/tmp/lighthouse/node_modules/.bin:$PATH
    python benchmarks/page_accessibility.py distdbg-runs/*/report/report.html

Ends with 1 where a page has less than 95 of 100. It needs node, Lighthouse and a Chromium.
"""

from __future__ import annotations

import functools
import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

LEAST = 95
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves a folder and prints no line for each request."""

    def log_message(self, format: str, *args: object) -> None:
        pass


def audit(page: Path) -> dict[str, Any]:
    """Lighthouse reads pages from a server only."""
    handler = functools.partial(Quiet, directory=str(page.parent))
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/{page.name}"
        chrome = "--chrome-flags=--headless --no-sandbox --disable-gpu"
        command = ["lighthouse", address, "--quiet", "--output=json", "--only-categories=accessibility", chrome]
        environment = {**os.environ, **({"CHROME_PATH": browser} if browser else {})}
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment, timeout=180)
        server.shutdown()
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> int:
    worst = 100
    for page in map(Path, sys.argv[1:]):
        found = audit(page.resolve())
        score = round(100 * found["categories"]["accessibility"]["score"])
        worst = min(worst, score)
        failed = [name for name, one in found["audits"].items() if one["score"] == 0]
        print(f"{score:3} {page}{': ' if failed else ''}{', '.join(failed)}")
    return 1 if worst < LEAST else 0


if __name__ == "__main__":
    sys.exit(main())
