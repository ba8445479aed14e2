"""`distdbg memory`: files in, a verdict, a page and JSON out; torch is never imported."""

import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import jsonschema
import pytest

from distdbg.cli.commands.memory import png
from distdbg.errors import ToolMissing
from tests.evidence.memory.test_memory_snapshots import fragmented, grown
from tests.made_snapshot import MIB, Made, forward, train, write

pytestmark = pytest.mark.slow  # a process for each of them

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments):
    command = [sys.executable, "-X", "importtime", "-m", "distdbg", "memory", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert loaded and not loaded & {"torch", "numpy"}
    said = "\n".join(line for line in done.stderr.splitlines() if not line.startswith("import time:"))
    return done.returncode, done.stdout, said


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("snapshots")
    write(folder / "oom_rank0.pickle", fragmented())
    leak = Made()
    train(leak, 20, each=lambda s: leak.alloc(3 * MIB, forward(99, "log</script><b>")))
    write(folder / "leak_rank1.pickle.gz", leak, packed=True)
    plain = Made(form="old")
    train(plain, 20)
    write(folder / "plain_rank2.pickle", plain)
    return folder


def test_text_says_the_verdict_first(files):
    code, out, _ = run("analyze", files)
    assert code == 10
    found = re.findall(r"^(cuda-oom|memory-leak|fragmentation|peak-too-high)", out, re.M)
    assert found[0] == "cuda-oom" and found.count("memory-leak") == 1
    assert "rank 0 asked for 48.0 MiB at model.py:80 attend" in out
    assert "3.00 MiB a step" in out and "model.py:31 forward" in out
    assert run("analyze", files / "plain_rank2.pickle")[0] == 0


def test_json_is_a_report(files):
    code, out, _ = run("analyze", files / "oom_rank0.pickle", "--json")
    report = json.loads(out)
    jsonschema.validate(report, json.loads((ROOT / "configs" / "report.schema.json").read_text()))
    assert code == 10 and report["run"] is None and report["findings"][0]["id"] == "cuda-oom"
    (memory,) = report["memory"]
    assert memory["oom"]["verdict"] == "fragmented" and memory["oom"]["stack"]["line"] == 80
    assert memory["peak"]["active"] == sum(s["bytes"] for s in memory["peak"]["stacks"]) + memory["peak"]["others"]


def test_the_page_holds_all_and_loads_nothing(files, tmp_path):
    code, _, _ = run("analyze", files, "--html", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert code == 10 and len(page) < 2_000_000
    # what a snapshot says is text: neither markup nor the end of the data
    assert "log</script>" not in page and "log&lt;/script&gt;" in page
    assert page.count("<script") == page.count("</script>") == 2
    assert "default-src 'none'" in page and "script-src 'sha256-" in page
    assert not re.search(r"""(?:src|href)\s*=\s*(?!["']?#)|url\(|@import|https?://(?!www\.w3\.org)""", page)
    assert "Segments when 48.0 MiB could not be had" in page and 'class="free"' in page


def test_the_picture_alone_is_an_svg_file(files, tmp_path):
    code, _, _ = run("analyze", files, "--svg", tmp_path / "picture.svg")
    picture = ElementTree.parse(tmp_path / "picture.svg").getroot()
    texts = [element.text or "" for element in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert code == 10 and picture.tag.endswith("}svg")
    assert "peak 912 MiB; dashed: reserved, 1020 MiB" in texts and any("model.py:70 pad" in text for text in texts)
    assert any("segments when 48.0 MiB could not be had" in text for text in texts)
    assert any("log</script><b>" in text for text in texts), "what a snapshot says is text"
    named = {element.tag.partition("}")[2] for element in picture.iter()}
    assert named == {"svg", "style", "rect", "g", "text", "line", "path", "title"}
    assert not any(name.endswith("href") for element in picture.iter() for name in element.attrib)


def test_a_long_path_leaves_the_rest_of_a_title_in_the_picture(tmp_path):
    path = tmp_path / ("a-long-name" * 15) / "rank_00003.pickle"
    path.parent.mkdir()
    write(path, fragmented())
    run("analyze", path, "--svg", tmp_path / "picture.svg")
    picture = ElementTree.parse(tmp_path / "picture.svg").getroot()
    (head, *_) = (e.text for e in picture.iter("{http://www.w3.org/2000/svg}text") if e.get("class") == "head")
    assert head.startswith("…") and "rank_00003.pickle · device 0 · " in head and len(head) == 134


def test_the_picture_as_png(files, tmp_path):
    """Without a font it says so: letters that are left out would be missed by nobody but the reader."""
    code, _, said = run("analyze", files, "--png", tmp_path / "picture.png", "--svg", tmp_path / "picture.svg")
    if not list(Path("/usr/share/fonts").rglob("*.ttf")):
        assert code == 4 and "no font to write with" in said
        pytest.skip("no font: install Debian's fonts-dejavu-core, or run `make system-packages`")
    width = ElementTree.parse(tmp_path / "picture.svg").getroot().get("width")
    data = (tmp_path / "picture.png").read_bytes()
    assert code == 10 and data[:8] == b"\x89PNG\r\n\x1a\n"
    assert int.from_bytes(data[16:20], "big") == 2 * int(width)


@pytest.mark.parametrize(
    ("resvg", "says"),
    [(None, r"\.\[png\]"), (SimpleNamespace(svg_to_bytes=lambda **_: b"no letters"), "no font to write with")],
)
def test_what_a_png_needs(resvg, says, monkeypatch):
    monkeypatch.setitem(sys.modules, "resvg_py", resvg)
    with pytest.raises(ToolMissing, match=says):
        png("<svg/>")


def test_the_policy_names_the_script_that_is_there(files, tmp_path):
    import base64
    import hashlib

    run("analyze", files / "plain_rank2.pickle", "--html", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.S)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"'sha256-{digest}'" in page


def test_diff_names_who_holds_more(files):
    code, out, _ = run("diff", files / "plain_rank2.pickle", files / "leak_rank1.pickle.gz")
    assert code == 0 and "+60.0 MiB" in out and "model.py:99 log" in out
    code, out, _ = run("diff", files / "plain_rank2.pickle", files / "leak_rank1.pickle.gz", "--json")
    report = json.loads(out)
    jsonschema.validate(report, json.loads((ROOT / "configs" / "report.schema.json").read_text()))
    assert report["diff"]["moments"][1]["changes"][0]["bytes"] == [0, 60 * MIB]


def test_diff_compares_more_stacks_than_are_shown(tmp_path):
    for name, made in (("a", grown()), ("b", grown(500, 501, 502))):
        write(tmp_path / f"{name}.pickle", made)
    _, out, _ = run("diff", tmp_path / "a.pickle", tmp_path / "b.pickle", "--json")
    peak, _ = json.loads(out)["diff"]["moments"]
    assert sorted(c["stack"]["line"] for c in peak["changes"]) == [500, 501, 502] and peak["others"] == [0, 0]


def test_errors_are_sentences(files, tmp_path):
    (tmp_path / "x.pickle").write_bytes(b"\x80\x02cos\nsystem\n(X\x04\x00\x00\x00truetR.")
    code, out, said = run("analyze", tmp_path / "x.pickle")
    assert (code, out) == (5, "") and "'os'.'system'" in said and "not executed" in said
    (tmp_path / "empty").mkdir()
    assert run("analyze", tmp_path / "empty")[0] == 3
    both = Made(0), Made(1)
    for made in both:
        train(made, 2)
    write(tmp_path / "two.pickle", *both)
    code, _, said = run("diff", tmp_path / "two.pickle", files / "plain_rank2.pickle")
    assert code == 2 and "--device" in said
    code, out, said = run("analyze", files / "plain_rank2.pickle", tmp_path / "x.pickle")
    assert code == 0 and "not executed" in out
