"""A page in a real browser: it is opened, a script of the test's runs in it, and what that leaves there is read."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import shutil
import subprocess

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
OPTIONS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1150,1300")
#: What the page's own script raises is kept too.
AROUND = """
const raised = []; addEventListener("error", (event) => raised.push(event.message));
const told = {}; const tell = (name, value) => { told[name] = value; };
addEventListener("load", () => {
  try { %s } catch (error) { raised.push(String(error)); }
  const left = document.createElement("pre"); left.id = "told";
  left.textContent = JSON.stringify({ told, raised });
  document.body.append(left);
});
"""


def run_in_page(page, script, tmp_path):
    """`script` calls tell(name, value). The page's own rule of which scripts may run holds: this one is added to it."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip("not possible here: no Chromium")
    script = AROUND % script
    allowed = "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    changed, count = re.subn(r"(script-src[^;\"]*)", rf"\1 '{allowed}'", page, count=1)
    assert count == 1, "the page says which scripts may run"
    changed = changed.replace("</head>", f"<script>{script}</script></head>", 1)
    path = tmp_path / "page.html"
    path.write_text(changed, encoding="utf-8")
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    done = subprocess.run([browser, *OPTIONS, profile, "--dump-dom", path.as_uri()], capture_output=True, text=True,
                          timeout=120, check=True)  # fmt: skip
    found = re.search(r'<pre id="told">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found, done.stderr[-2000:]
    left = json.loads(html.unescape(found[1]))
    assert left["raised"] == []
    return left["told"]
