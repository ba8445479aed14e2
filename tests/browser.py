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

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")
OPTIONS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
#: What the page's own script raises is kept too, and whatever it would have loaded.
AROUND = """
const raised = []; addEventListener("error", (event) => raised.push(event.message));
addEventListener("securitypolicyviolation", (event) => raised.push(event.violatedDirective + " " + event.blockedURI));
const values = {}; const tell = (name, value) => { values[name] = value; };
addEventListener("load", () => {
  try { %s } catch (error) { raised.push(String(error)); }
  raised.push(...performance.getEntriesByType("resource").map((entry) => entry.name));
  const left = document.createElement("pre"); left.id = "values";
  left.textContent = JSON.stringify({ values, raised });
  document.body.append(left);
});
"""


def run_in_page(page, script, tmp_path, *, dark=False, width=1150):
    """`script` calls tell(name, value). The page's own rule of which scripts may run holds: this one is added to it.

    Fails for a script's error, and for anything that the page loads or would load.
    """
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip("not possible here: no Chromium (`make system-packages` brings one, on Debian)")
    script = AROUND % script
    allowed = "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    page = page if "script-src" in page else page.replace("default-src 'none';", "default-src 'none'; script-src;", 1)
    changed, count = re.subn(r"(script-src[^;\"]*)", rf"\1 '{allowed}'", page, count=1)
    assert count == 1, "the page says which scripts may run"
    changed = changed.replace("</head>", f"<script>{script}</script></head>", 1)
    path = tmp_path / "page.html"
    path.write_text(changed, encoding="utf-8")
    more = [
        f"--window-size={width},1300",
        f"--user-data-dir={tmp_path / 'profile'}",
        f"--blink-settings=preferredColorScheme={0 if dark else 1}",
    ]
    done = subprocess.run([browser, *OPTIONS, *more, "--dump-dom", path.as_uri()], capture_output=True, text=True,
                          timeout=120, check=True)  # fmt: skip
    found = re.search(r'<pre id="values">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found, done.stderr[-2000:]
    left = json.loads(html.unescape(found[1]))
    assert left["raised"] == []
    return left["values"]
