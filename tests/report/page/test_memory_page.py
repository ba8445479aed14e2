"""The memory page in a real browser: its script draws, zooms, moves and shows the stack that is clicked."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from importlib.resources import files

import pytest

from distdbg.evidence.memory.analysis import analyse
from distdbg.evidence.memory.answer import gib
from distdbg.report.memory_report import memory_report
from distdbg.report.page.memory_page import memory_page
from tests.browser import run_in_page
from tests.evidence.memory.test_memory_snapshots import fragmented
from tests.made_snapshot import MIB, Made, forward, snapshot, train

pytestmark = pytest.mark.slow

HOSTILE = "</script><script>document.title = 'taken'</script>"
AXES = """
const section = document.querySelector("section.memory"), svg = section.querySelector(".chart");
const axes = () => [".axis.begin", ".axis.end"].map((name) => svg.querySelector(name).textContent);
const box = svg.getBoundingClientRect();
const at = (share, more) => ({ bubbles: true, cancelable: true, clientX: box.left + share * box.width,
                               clientY: box.top + box.height / 2, ...more });
"""


@pytest.fixture(scope="module")
def page():
    made = Made()
    train(made, 12, each=lambda step: made.alloc(3 * MIB, forward(99, "log")))
    made.alloc(40 * MIB, forward(98, HOSTILE))
    answers = analyse(snapshot(made))
    return memory_page(memory_report(answers), answers)


def test_it_draws_and_its_tools_are_there(page, tmp_path):
    seen = run_in_page(
        page,
        AXES
        + """
        tell("areas", svg.querySelectorAll(".areas path").length);
        tell("tools", section.querySelector(".tools").hidden);
        tell("titles", [...svg.querySelectorAll(".areas title")].map((t) => t.textContent));
        tell("axes", axes());
        tell("name", document.title);
        """,
        tmp_path,
    )
    assert any(title.startswith(f"model.py:98 {HOSTILE}") for title in seen["titles"]) and seen["name"] != "taken"
    assert seen["areas"] > 3 and not seen["tools"]
    assert any(title.startswith("model.py:99 log: up to 36") for title in seen["titles"]), seen["titles"]
    assert seen["axes"][0].startswith("event 0")


def test_a_click_shows_the_stack(page, tmp_path):
    seen = run_in_page(
        page,
        AXES
        + """
        const leak = [...svg.querySelectorAll(".areas path")].find((p) => p.textContent.startsWith("model.py:99 log"));
        leak.dispatchEvent(new MouseEvent("click", at(0.99)));
        const chosen = section.querySelector(".chosen");
        tell("hidden", chosen.hidden);
        tell("head", chosen.querySelector("h3").textContent);
        tell("frames", chosen.querySelector("pre").textContent);
        tell("marked", [...svg.querySelectorAll(".areas path.on")].map((p) => p.textContent));
        """,
        tmp_path,
    )
    assert not seen["hidden"] and seen["head"] == "model.py:99 log: 36.0 MiB"
    assert "model.py:99 log" in seen["frames"]
    assert len(seen["marked"]) == 1 and seen["marked"][0].startswith("model.py:99 log")


def test_the_wheel_zooms_dragging_moves_and_a_double_click_shows_all(page, tmp_path):
    seen = run_in_page(
        page,
        AXES
        + """
        const number = (text) => +text.match(/event (\\d+)/)[1];
        const span = () => axes().map(number);
        tell("whole", span());
        for (let n = 0; n < 5; n++) svg.dispatchEvent(new WheelEvent("wheel", at(0.5, { deltaY: -200 })));
        tell("zoomed", span());
        svg.dispatchEvent(new PointerEvent("pointerdown", at(0.5)));
        dispatchEvent(new PointerEvent("pointermove", at(0.3)));
        dispatchEvent(new PointerEvent("pointerup", at(0.3)));
        tell("moved", span());
        for (let n = 0; n < 99; n++) svg.dispatchEvent(new WheelEvent("wheel", at(0.5, { deltaY: 900 })));
        tell("out", span());
        section.querySelector("[data-zoom=peak]").click();
        tell("peak", [...span(), svg.querySelector(".peak").getAttribute("visibility")]);
        svg.dispatchEvent(new MouseEvent("dblclick", at(0.5)));
        tell("all", span());
        """,
        tmp_path,
    )
    first, last = seen["whole"]
    begin, end = seen["zoomed"]
    assert first < begin < end < last and end - begin < (last - first) / 2
    moved = seen["moved"]
    assert begin < moved[0] and end < moved[1] and abs((moved[1] - moved[0]) - (end - begin)) <= 2
    assert seen["out"] == seen["all"] == seen["whole"], "no further than the trace"
    assert seen["peak"][2] == "visible" and seen["peak"][1] - seen["peak"][0] < (last - first) / 4


def test_an_error_on_one_of_three_ranks(tmp_path):
    """Segments and holes, the ranks side by side, and the view of the events around the peak."""
    long = Made()
    train(long, 80, each=lambda step: step or long.alloc(1010 * MIB, forward(97, "once")))
    answers = [replace(analyse(snapshot(made))[0], rank=rank, path=f"rank{rank}.pickle")
               for rank, made in enumerate((long, fragmented(), fragmented()))]  # fmt: skip
    seen = run_in_page(
        memory_page(memory_report(answers), answers),
        """
        const sections = [...document.querySelectorAll("section.memory")];
        tell("ranks", [...document.querySelectorAll(".sparks figure")].map((f) => f.textContent));
        tell("drawn", [...document.querySelectorAll(".spark path")].map((p) => p.getBBox().width));
        const tapes = sections.map((s) => [...s.querySelectorAll(".tape rect")].filter((r) => r.getBBox().width > 0));
        tell("tapes", tapes.map((rects) => [...new Set(rects.map((r) => r.getAttribute("class")))].sort()));
        tell("hole", tapes[0].find((r) => r.classList.contains("free")).textContent);
        const long = sections.find((s) => s.querySelector("[data-view='1']")), svg = long.querySelector(".chart");
        const axes = () => [".axis.begin", ".axis.end"].map((n) => +svg.querySelector(n).textContent.match(/\\d+/)[0]);
        tell("whole", axes());
        tell("largest", [...svg.querySelectorAll(".areas title")].map((t) => t.textContent));
        long.querySelector("[data-view='1']").click();
        tell("around", [...axes(), svg.querySelector(".peak").getAttribute("visibility")]);
        long.querySelector("[data-view='0']").click();
        tell("again", axes());
        """,
        tmp_path,
    )
    assert [text.split()[:2] for text in seen["ranks"]] == [["rank", "0"], ["rank", "1"], ["rank", "2"]]
    assert all(width > 100 for width in seen["drawn"])
    assert seen["tapes"] == [["free", "used"], ["free", "used"], []]
    assert seen["hole"].startswith("free: ") and "for large requests" in seen["hole"]
    assert any(title == "model.py:97 once: up to 1010 MiB" for title in seen["largest"]), seen["largest"]
    (first, last), (begin, end, visible) = seen["whole"], seen["around"]
    assert (first, end - begin, visible) == (0, 767, "visible") and begin >= 0 and end <= last
    assert seen["again"] == seen["whole"]


def test_sizes_are_written_as_everywhere_else():
    """By node alone, where there is no browser."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("not possible here: no node, and a browser's test has the same")
    script = (files("distdbg.report") / "templates" / "memory.js").read_text(encoding="utf-8")
    (function,) = re.findall(r"const bytes = .*?\n  };\n", script, re.DOTALL)
    mib = [1, 1.37, 9.99, 10.4, 99.93, 100, 999, 1000, 1010, 1023, 1024, 1500, 30_000, 200_000]
    sizes = [512, 1023, *(int(size * 1024) for size in mib)]
    done = subprocess.run([node, "-e", f"{function} console.log(JSON.stringify({sizes}.map(bytes)))"],
                          capture_output=True, text=True, check=True)  # fmt: skip
    assert json.loads(done.stdout) == [gib(kib << 10) for kib in sizes]
