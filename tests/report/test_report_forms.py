"""The three forms of one report: text, JSON by its schema, an offline page."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import jsonschema
import pytest

from distdbg.assets import asset_dir
from distdbg.collect.runs.report_files import write_report
from distdbg.plain_text import clean
from distdbg.report.json_form import as_json, dumps
from distdbg.report.page.renderer import PageRenderer, script_values
from distdbg.report.run_document import run_document
from distdbg.report.text.renderer import TextRenderer, ticket
from distdbg.report.text.screen import Screen
from tests.browser import run_in_page
from tests.made_run import GLOO_LOST, MadeRun

HOSTILE = "\x1b[31m</script><img src=x onerror=alert(1)>\x1b]0;title\x07 {{ 7*7 }} \u202e\ud800 & <b>&lt;\r\x00"
SCHEMA = json.loads((asset_dir("configs") / "report.schema.json").read_text())


def render_text(report, shown=None, **how):
    return TextRenderer(Screen.of(**how), shown=shown).render(run_document(report))


def failed(folder, **options):
    run = MadeRun(folder, **options)
    run.raises(1, "RuntimeError", "mat1 and mat2 shapes cannot be multiplied (4x8 and 4x8)", t=9.0)
    run.raises(0, "RuntimeError", GLOO_LOST, t=8.9)
    run.rest(-15, t=11.0, asked=9.5)
    return run.closes()


def succeeded(folder):
    run = MadeRun(folder)
    run.rest(0)
    return run.closes()


def crowd(folder):
    run = MadeRun(folder, ranks=1024, nodes=128)
    run.exits(517, -9, t=300, step=812)
    for rank in range(3, 1024, 8):
        run.raises(rank, "RuntimeError", GLOO_LOST, t=301 + rank / 1000)
    run.rest(-15, t=305, asked=301.5)
    return run.closes()


@pytest.mark.parametrize("make", [failed, succeeded])
def test_json_fits_its_schema(tmp_path, make):
    report = make(tmp_path).report()
    jsonschema.validate(json.loads(dumps(report)), SCHEMA, cls=jsonschema.Draft202012Validator)


def test_schema_refuses_what_is_not_a_report(tmp_path):
    value = as_json(failed(tmp_path).report())
    value["findings"][0]["severity"] = "fatal"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(value, SCHEMA)


def test_text_begins_with_the_verdict_and_ends_with_whose_code_it_is(tmp_path):
    lines = render_text(failed(tmp_path).report()).split("\n")
    assert "failed" in lines[0]
    assert lines[2].startswith("rank-exception  rank 1 raised RuntimeError: mat1 and mat2")
    assert any("loss = net(x)" in line for line in lines)
    assert lines[-1] == "exit code 1: rank 1"
    assert lines.index("Explained by it:") > 2


def test_what_was_shown_is_named_again_and_not_reported_again(tmp_path):
    report = failed(tmp_path).report()
    whole, rest = render_text(report), render_text(report, shown=report)
    (lead, *_) = report.verdict
    assert f"{lead.id}  {lead.summary}"[:60] in rest and whole.count("\n  seen ") > 0
    assert not re.search(r"^  (why|do|seen) ", rest, re.M) and "Explained by it" not in rest and "Unknown:" not in rest
    assert rest.splitlines()[0] == whole.splitlines()[0] and rest.splitlines()[-1] == whole.splitlines()[-1]
    other = replace(report, findings=tuple(replace(f, summary=f"not {f.summary}") for f in report.findings))
    assert render_text(report, shown=other) != rest


def test_text_is_plain_unless_colour_is_asked_for(tmp_path):
    report = failed(tmp_path).report()
    assert "\x1b" not in render_text(report)
    assert "\x1b[1;31m" in render_text(report, color=True)


def test_text_of_success_is_short(tmp_path):
    assert len(render_text(succeeded(tmp_path).report()).split("\n")) <= 4


def test_clean_shows_controls_and_obeys_none():
    assert (
        clean("\x1b[1;31mred\x1b[0m\x1b]8;;http://x\x07link \x07 a\rb\x00\u202e") == "redlink \u2407 a\nb\u2400\ufffd"
    )


class Page(HTMLParser):
    """Collects tags, what they point to, and the texts of scripts, title and ticket."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.ids, self.addresses, self.handlers = set(), [], [], []
        self.texts, self.inside = {}, ""
        self.feed(text)

    def handle_data(self, data):
        if self.inside:
            self.texts[self.inside] = self.texts.get(self.inside, "") + data

    def handle_endtag(self, tag):
        self.inside = ""

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.ids += [v for k, v in attrs if k == "id"]
        named = tag if tag in ("script", "title") else dict(attrs).get("id") or ""
        self.inside = "" if named in self.texts else named  # drawings have titles, too
        self.addresses += [v for k, v in attrs if k in ("src", "href", "action", "data")]
        self.handlers += [k for k, _ in attrs if k.startswith("on")]


def hostile(folder):
    run = failed(folder)
    run.prints(1, HOSTILE * 5)
    run.files(1).stdout.write_bytes(b"\xff\xfe</pre><script>alert(1)")
    job = run.job() | {"argv": ["distdbg", HOSTILE], "name": HOSTILE, "notes": [HOSTILE]}
    job["environment"].append({"name": HOSTILE, "value": HOSTILE, "origin": HOSTILE})
    run.dir.job.write_text(json.dumps(job))
    run.raises(2, "Evil" + "</h3><script>", HOSTILE, t=9.2)
    return run


@pytest.mark.parametrize("make", [failed, succeeded, crowd, hostile])
def test_page_is_offline_and_escaped(tmp_path, make):
    run = make(tmp_path)
    evidence = run.evidence()
    text = PageRenderer().render(run_document(run.report(), evidence, whole=True))
    page = Page(text)
    assert not page.tags & {"img", "iframe", "object", "embed", "link", "form", "base"}
    assert {address.removeprefix("#") for address in page.addresses} <= {*page.ids} and page.handlers == []
    assert all(address.startswith("#") for address in page.addresses) and len(page.ids) == len({*page.ids})
    assert text.count("<script") == 1 and page.texts["script"] == script_values("ticket.js")["script"]
    assert not re.search(r"url\(|@import|https?://(?!www\.w3\.org)", text.partition("</style>")[0])
    assert "Content-Security-Policy" in text and "prefers-color-scheme: dark" in text
    assert len(text.encode()) < 2_000_000
    assert "\x1b" not in text and "\x00" not in text


def test_what_a_rank_printed_is_no_template(tmp_path):
    run = hostile(tmp_path)
    assert PageRenderer().render(run_document(run.report(), run.evidence(), whole=True)).count("{{ 7*7 }}") >= 5


def test_page_holds_what_a_person_looks_for(tmp_path):
    run = failed(tmp_path)
    text = PageRenderer().render(run_document(run.report(), run.evidence(), whole=True))
    for wanted in ("rank 1 raised RuntimeError", "TORCH_FR_BUFFER_SIZE", "preset default", "node1", "train.py:88"):
        assert wanted in text
    assert "***" in text  # what job.json masks stays masked


def test_page_marks_a_possible_cause_apart_from_a_root_cause(tmp_path):
    run = failed(tmp_path)
    report, evidence = run.report(), run.evidence()
    (cause, *others) = report.findings
    possible = replace(report, findings=(replace(cause, confidence="possible"), *others))
    page, doubtful = (PageRenderer().render(run_document(r, evidence, whole=True)) for r in (report, possible))
    assert "root cause" in page and "possible cause" not in page
    assert "root cause" not in doubtful and "possible cause" in doubtful


def test_crowd_is_folded_with_the_outlier_first(tmp_path):
    run = crowd(tmp_path)
    text = PageRenderer().render(run_document(run.report(), run.evidence(), whole=True))
    drawn = re.findall(r'<div class="label">(.*?)</div>', text)
    assert drawn == ["rank 517", "128 ranks", "895 ranks"]
    assert text.count('<i class="') == 1024
    assert text.count('<i class="root"') == 1


def test_the_title_has_the_verdict_the_outcome_and_the_run(tmp_path):
    run = failed(tmp_path)
    page = Page(PageRenderer().render(run_document(run.report(), run.evidence(), whole=True)))
    assert page.texts["title"].split(" · ") == ["rank-exception", "failed", run.dir.id]


def test_each_finding_has_an_address(tmp_path):
    report = failed(tmp_path).report()
    twice = replace(report, findings=(*report.findings, replace(report.findings[0], ranks=(3,))))
    page = Page(PageRenderer().render(run_document(twice)))
    wanted = {f.id for f in twice.findings} | {f"{report.findings[0].id}-2"}
    assert wanted <= {*page.ids} and {f"#{anchor}" for anchor in wanted} <= {*page.addresses}


def test_the_ticket_is_the_text_report_in_a_fence_that_it_cannot_end(tmp_path):
    run = failed(tmp_path)
    report = replace(run.report(), exit_code_of="rank 1 ```` \n````\nout")
    document = run_document(report, run.evidence(), whole=True)
    lines = ticket(document).splitlines()
    assert lines[0] == "`````text" and lines[-1] == "`````" and "`````" not in lines[1:-1]
    assert lines[1].startswith("$ distdbg launch")
    assert set(TextRenderer().render(document).splitlines()) <= {*lines}
    assert Page(PageRenderer().render(document)).texts["ticket"] == ticket(document)


LOOK = """
const head = document.querySelector("main .card h3"), box = head.getBoundingClientRect();
const light = (color) => color.match(/\\d+/g).slice(0, 3).reduce((sum, part) => sum + +part, 0);
tell("verdict", head.textContent);
tell("shown", box.height > 0 && box.top >= 0 && box.bottom <= innerHeight && box.right <= innerWidth);
tell("dark", matchMedia("(prefers-color-scheme: dark)").matches);
tell("paper", light(getComputedStyle(document.body).backgroundColor));
tell("ink", light(getComputedStyle(head).color));
tell("wide", document.documentElement.scrollWidth <= innerWidth);
"""


@pytest.mark.slow  # a browser, twice
@pytest.mark.parametrize("ranks", [8, 1024])
def test_a_browser_shows_the_verdict_and_loads_nothing(tmp_path, ranks):
    run = crowd(tmp_path) if ranks == 1024 else failed(tmp_path, ranks=ranks)
    page = PageRenderer().render(run_document(run.report(), run.evidence(), whole=True))
    for dark in (False, True):
        seen = run_in_page(page, LOOK, tmp_path, dark=dark)
        assert ("rank 517" if ranks == 1024 else "rank 1 raised RuntimeError") in seen["verdict"]
        assert seen["shown"] and seen["wide"] and seen["dark"] is dark
        assert (seen["ink"] - seen["paper"]) * (1 if dark else -1) > 300, "light on dark, or dark on light"


#: The rules for paper as the rules of the screen, everything folded: what a print of the page has.
PRINT = """
const sheet = document.styleSheets[0];
for (const rule of [...sheet.cssRules])
  if (rule.conditionText === "print")
    for (const inner of [...rule.cssRules]) sheet.insertRule(inner.cssText, sheet.cssRules.length);
for (const fold of document.querySelectorAll("details")) fold.open = false;
const seen = (element) => element.checkVisibility();
tell("folded", [...document.querySelectorAll("details:not(.ticket details) > pre")].map(seen));
tell("left", ["button", ".ticket"].map((name) => seen(document.querySelector(name))));
tell("cut", [...document.querySelectorAll("pre")].filter((e) => seen(e) && e.scrollWidth > e.clientWidth).length);
"""
COPY = """
const button = document.getElementById("copy-ticket");
tell("hidden", button.hidden);
button.click();
tell("selected", String(getSelection()));
tell("open", document.getElementById("ticket").closest("details").open);
"""
NARROW = """
tell("wide", document.documentElement.scrollWidth <= innerWidth);
tell("width", innerWidth);
tell("letters", [...document.querySelectorAll(".drawing svg text")].map((e) => e.getBoundingClientRect().height));
"""


@pytest.mark.slow  # a browser
def test_print_shows_what_is_folded_and_no_button(tmp_path):
    run = failed(tmp_path)
    run.prints(1, "a line that goes on " * 40)
    page = PageRenderer().render(run_document(run.report(), run.evidence(), whole=True))
    seen = run_in_page(page, PRINT, tmp_path)
    assert seen["folded"] and all(seen["folded"])
    assert not any(seen["left"]) and seen["cut"] == 0


@pytest.mark.slow  # a browser
def test_the_button_takes_the_ticket_without_a_network(tmp_path):
    run = failed(tmp_path)
    document = run_document(run.report(), run.evidence(), whole=True)
    seen = run_in_page(PageRenderer().render(document), COPY, tmp_path)
    assert not seen["hidden"] and seen["open"]
    assert seen["selected"].split() == ticket(document).split()


@pytest.mark.slow  # a browser
def test_a_narrow_page_does_not_scroll_and_its_drawings_are_legible(tmp_path):
    run = with_dump(failed(tmp_path))
    page = PageRenderer().render(run_document(run.report(), run.evidence(), whole=True))
    seen = run_in_page(page, NARROW, tmp_path, width=480)
    assert seen["width"] == 480 and seen["wide"]
    assert seen["letters"] and min(seen["letters"]) > 8


def test_rank_that_starts_is_alive_in_the_table_and_in_the_sentence(tmp_path):
    """The agents have announced the ranks, and have not found their processes."""
    run = MadeRun(tmp_path, ranks=2, nodes=1)
    events = run.node_files[0].events
    events.write_text("".join(line for line in events.open() if "rank-started" not in line))
    report, evidence = run.report(), run.evidence()
    assert [rank.state for rank in report.ranks] == ["starting", "starting"]
    document = run_document(report, evidence, whole=True)
    assert document.ending == "exit code: none yet: the job was still running"
    (table,) = (b for s in document.sections if s.title == "Ranks" for b in s.blocks)
    assert [(row[2].text, row[2].kind) for row in table.rows] == [("starting", "running")] * 2


def test_files_are_written_and_can_be_rebuilt(tmp_path):
    run = hostile(tmp_path)
    report = run.report()
    write_report(run.dir, report, run.evidence())
    first = run.dir.report_json.read_bytes()
    for path in (run.dir.report_json, run.dir.report_text, run.dir.report_html):
        assert path.stat().st_size > 100
        path.unlink()
    write_report(run.dir, run.report(), run.evidence())
    assert run.dir.report_json.read_bytes() == first


def with_dump(run):
    """Four ranks, rank 1 in a function with a hostile name."""
    folder = run.dir.path / "attempts" / "1" / "dumps" / "20260101T000000Z-asked"
    (folder / "nodes").mkdir(parents=True)
    (folder / "stacks").mkdir()
    ranks = []
    for rank in range(4):
        frames = [{"name": HOSTILE if rank == 1 else "wait", "filename": "/home/me/train.py", "line": 88}]
        threads = [{"pid": 1000 + rank, "os_thread_id": 1000 + rank, "thread_name": "MainThread", "frames": frames}]
        (folder / "stacks" / f"{rank}.json").write_text(json.dumps(threads))
        look = {"t": 1_790_000_000.0, "process": {"state": "S"}, "stacks": {"file": f"stacks/{rank}.json"}}
        ranks.append({"rank": rank, "pid": 1000 + rank, "looks": [look]})
    (folder / "nodes" / "0000.json").write_text(json.dumps({"node_rank": 0, "host": "node0", "ranks": ranks}))
    (folder / "manifest.json").write_text(json.dumps({"t": 1_790_000_000.0, "reason": "asked", "world_size": 4}))
    return run


def test_a_dump_is_drawn_on_the_page_and_its_scripts_names_are_text(tmp_path):
    run = with_dump(failed(tmp_path))
    text = PageRenderer().render(run_document(run.report(), run.evidence(), whole=True))
    assert "Where the ranks are" in text and "ranks 0,2-3 (3)" in text and "2 kinds of stack" in text
    assert text.count("<script") == 1 and "\x1b" not in text
    assert len(text) < 60_000


def test_a_run_without_a_dump_has_no_picture(tmp_path):
    run = failed(tmp_path)
    assert "Where the ranks are" not in PageRenderer().render(run_document(run.report(), run.evidence(), whole=True))
