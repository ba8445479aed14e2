"""`distdbg lint PATHS` (before the run): find mistakes in training scripts without running them."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from distdbg.cli.epilog import examples, exits
from distdbg.cli.json_answer import note_json
from distdbg.errors import EXIT_FINDINGS, EXIT_OK, EXIT_UNREADABLE, NothingToAnalyse, UsageError
from distdbg.plain_text import clean
from distdbg.terminal import in_colour

if TYPE_CHECKING:
    from collections.abc import Iterable

    from distdbg.collect.files.sources import SourceText
    from distdbg.lint.linting import Linted
    from distdbg.lint.script.parsing import UnreadableScript
    from distdbg.model import Finding, Unknown

    Results = dict[str, Linted | UnreadableScript]


@exits(
    {
        0: "nothing of severity error",
        3: "no file to read",
        5: "files were skipped or could not be corrected, or the input of --lsp does not follow the protocol",
        10: "findings of severity error",
    }
)
@examples("distdbg lint train.py src/", "distdbg lint --fix train.py", "distdbg lint --sarif . > lint.sarif")
@click.command("lint")
@click.argument("paths", nargs=-1, metavar="PATHS...")
@click.option("--select", multiple=True, metavar="ID[,ID]", help="Check these findings only.")
@click.option("--ignore", multiple=True, metavar="ID[,ID]", help="Do not check these findings.")
@click.option("--all", "everything", is_flag=True, help="Show findings of severity info, too.")
@click.option("--preview", is_flag=True, help="Check for mistakes that no public repository is known to have had, too.")
@click.option("--rules", "list_rules", is_flag=True, help="List all rules: tier, severity, fix, real mistakes.")
@click.option("--exclude", multiple=True, metavar="PATTERN", help="Skip files and folders of this name.")
@click.option(
    "--json",
    "form",
    flag_value="json",
    callback=note_json,
    help="Print the report as one JSON object (distdbg.report/1).",
)
@click.option("--sarif", "form", flag_value="sarif", help="Print SARIF 2.1.0.")
@click.option(
    "--github", "form", flag_value="github", help="Print workflow commands that GitHub shows beside the lines."
)
@click.option("--fix", is_flag=True, help="Correct in place what can be corrected with certainty.")
@click.option("--diff", is_flag=True, help="Print what --fix would change as a unified diff, and change nothing.")
@click.option("--no-cache", is_flag=True, help="Read everything anew, and keep nothing of it.")
@click.option("--stdin", "by_stdin", is_flag=True, help="Read one file from standard input, as editors do.")
@click.option("--lsp", is_flag=True, help="Serve an editor over the language server protocol, with quick fixes.")
@click.option("--stdin-filename", metavar="FILE", default="stdin.py", help="The name of that file: it need not exist.")
def command(  # noqa: PLR0917 -- click passes them by name
    paths: tuple[str, ...],
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    everything: bool,
    preview: bool,
    list_rules: bool,
    exclude: tuple[str, ...],
    form: str | None,
    fix: bool,
    diff: bool,
    no_cache: bool,
    by_stdin: bool,
    lsp: bool,
    stdin_filename: str,
) -> None:
    """Find mistakes that raise no error in scripts, notebooks and folders of them.

    `# distdbg: ignore[ID]` on a line silences it there; `distdbg findings ID` explains it; `[tool.distdbg.lint]` in
    pyproject.toml takes select, ignore and exclude.
    """
    from distdbg.collect.files.sources import find_sources, read_standard_input, settings_for

    if list_rules:
        _show_rules()
        return
    selected, ignored = _split("--select", select), _split("--ignore", ignore)
    if by_stdin and (paths or fix):
        raise UsageError("--stdin reads one file and changes none", "Name no file beside it, and leave out --fix.")
    if diff and (form or lsp):
        raise UsageError("--diff prints a diff and no other form", "Leave out --diff, or the other form.")
    if lsp:
        if paths or fix or form or by_stdin:
            raise UsageError("--lsp serves an editor, which names the files itself", "Name none, and no form.")
        from distdbg.cli.lsp import serve

        serve(settings_for(".", selected, ignored, exclude, preview=preview).wanted, everything=everything)
        return
    if not paths and not by_stdin:
        raise UsageError("no file and no folder is named", "Try `distdbg lint train.py` or `distdbg lint .`.")
    paths = paths or (stdin_filename,)
    settings = settings_for(paths, selected, ignored, exclude, preview=preview)
    found = [read_standard_input(stdin_filename)] if by_stdin else find_sources(paths, settings.exclude)
    sources = {source.path: source for source in found}
    if not sources:
        raise NothingToAnalyse(
            f"no script and no notebook is in {', '.join(map(repr, paths))}", "Name files, or folders that hold some."
        )
    _warn_of_misspelt_ids(sources.values())
    cached = not (no_cache or by_stdin)
    results = _lint(sources, settings.wanted, cached=cached)
    unwritten: dict[str, str] = {}
    if fix or diff:
        texts, left = _correct(sources, results)
        if diff:
            _show_diff(sources, texts)
        else:
            unwritten = _write(sources, texts, results)
        sources |= {path: replace(sources[path], text=text) for path, text in texts.items() if path not in unwritten}
        results = _lint(sources, settings.wanted, cached=cached)
        _say_what_was_left(_findings(results), sources, left | unwritten)
    findings, unknown = _findings(results), _unknown(sources, results)
    shown = [_in_cells(f, sources) for f in findings if everything or select or f.severity != "info"]
    if not diff:
        _show(shown, unknown, len(sources) - len(unknown), form, hidden=len(findings) - len(shown))
    errors = any(finding.severity == "error" for finding in findings)
    sys.exit(EXIT_FINDINGS if errors else EXIT_UNREADABLE if unknown or unwritten else EXIT_OK)


def _show_rules() -> None:
    """A line for each rule; the last column is the number of mistakes of public repositories with this id."""
    from distdbg.lint import all_rules

    click.echo(f"{'id':28} {'tier':8} {'severity':9} {'fix':4} real mistakes")
    for rule in all_rules():
        fix = "yes" if rule.fixes else "no"
        click.echo(f"{rule.doc.id:28} {rule.tier:8} {rule.doc.severity:9} {fix:4} {rule.real_mistakes}")


def _warn_of_misspelt_ids(sources: Iterable[SourceText]) -> None:
    from distdbg.findings import catalogue
    from distdbg.lint.linting import misspelt_ids

    for source in sources:
        for line, name in misspelt_ids(source.text or ""):
            import difflib  # most files have none

            near = difflib.get_close_matches(name, catalogue(), n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            click.echo(
                clean(f"{source.path}:{line}: this comment silences nothing: no finding is called {name}{hint}"),
                err=True,
            )


def _lint(sources: dict[str, SourceText], wanted: frozenset[str], *, cached: bool) -> Results:
    from distdbg.collect.files.linted_files import lint_together

    texts = {path: source.text for path, source in sources.items() if source.text is not None}
    return lint_together(texts, wanted, cached=cached)


def _findings(results: Results) -> list[Finding]:
    from distdbg.lint.linting import Linted

    return [f for result in results.values() if isinstance(result, Linted) for f in result.findings]


def _unknown(sources: dict[str, SourceText], results: Results) -> list[Unknown]:
    from distdbg.lint.linting import Linted
    from distdbg.model import Unknown

    because = {path: str(results[path]) if path in results else source.because for path, source in sources.items()}
    return [Unknown(path, because[path]) for path in sources if not isinstance(results.get(path), Linted)]


def _correct(sources: dict[str, SourceText], results: Results) -> tuple[dict[str, str], dict[str, str]]:
    """The corrected texts by path, and why another text is left as it is."""
    from distdbg.lint.fixing import corrected
    from distdbg.lint.linting import Linted

    texts: dict[str, str] = {}
    left: dict[str, str] = {}
    for path, result in results.items():
        edits = result.edits if isinstance(result, Linted) else ()
        if edits and sources[path].is_notebook:
            left[path] = "--fix changes no notebook"
        elif edits:
            text = corrected(path, sources[path].text or "", edits)
            if text is None:
                left[path] = "lint would find something else in the corrected text"
            else:
                texts[path] = text
    return texts, left


def _show_diff(sources: dict[str, SourceText], texts: dict[str, str]) -> None:
    from distdbg.lint.fixing import diff

    for path, text in texts.items():
        for line in diff(path, sources[path].text or "", text):
            click.echo(clean(line) if sys.stdout.isatty() else line, nl=False)


def _write(sources: dict[str, SourceText], texts: dict[str, str], results: Results) -> dict[str, str]:
    """Write the corrected texts. Returns why a file was not written, by path."""
    from distdbg.collect.files.sources import write_source
    from distdbg.lint.linting import Linted

    unwritten: dict[str, str] = {}
    for path, text in texts.items():
        result = results[path]
        assert isinstance(result, Linted)
        try:
            write_source(Path(path), sources[path].text or "", text)
        except OSError as error:
            unwritten[path] = f"the file was not written: {error.strerror or error}"
        else:
            for number, edit in enumerate(result.edits):
                click.echo(clean(f"{path}:{edit.before + number}: inserted {edit.text}"), err=True)
    return unwritten


def _say_what_was_left(findings: Iterable[Finding], sources: dict[str, SourceText], left: dict[str, str]) -> None:
    """What --fix does not correct, and why: by their ids, for several of one id are common."""
    places: dict[tuple[str, str], list[str]] = {}
    for finding in findings:
        if finding.severity != "info":
            source, line = sources[finding.evidence[0].path], finding.evidence[0].line or 1
            place = "cell {}:{}".format(*source.in_cell(line)) if source.is_notebook else line
            why = _why_left(finding, left.get(source.path, ""))
            places.setdefault((finding.id, why), []).append(f"{source.path}:{place}")
    for (name, why), where in places.items():
        more = f" and {len(where) - 3} more" if len(where) > 3 else ""
        click.echo(clean(f"left alone: {name} at {', '.join(where[:3])}{more}: {why}"), err=True)


def _why_left(finding: Finding, why: str) -> str:
    from distdbg.lint import fixable

    if finding.id not in fixable():
        return "it takes more than a line, or a decision"
    return why or "here no line is certain to be right"


def _in_cells(finding: Finding, sources: dict[str, SourceText]) -> Finding:
    """The finding, of a notebook with cells and lines in them."""
    if not any(sources[cited.path].is_notebook for cited in finding.evidence):
        return finding
    evidence = []
    for cited in finding.evidence:
        source = sources[cited.path]
        if source.is_notebook and cited.line is not None:
            cell, line = source.in_cell(cited.line)
            cited = replace(cited, line=line, where=f"cell {cell}, {cited.where}")  # noqa: PLW2901
        evidence.append(cited)
    return replace(finding, evidence=tuple(evidence))


def _show(findings: list[Finding], unknown: list[Unknown], files: int, form: str | None, *, hidden: int) -> None:
    from distdbg.report.text import lint_forms

    if form == "json":
        from distdbg.model import Report
        from distdbg.report import json_form

        click.echo(json_form.dumps(Report(None, tuple(findings), unknown=tuple(unknown))), nl=False)
    elif form == "sarif":
        from distdbg import __version__
        from distdbg.lint import docs

        click.echo(lint_forms.as_sarif(findings, unknown, {d.id: d for d in docs()}, __version__), nl=False)
    else:
        lines = (
            lint_forms.as_github(findings, unknown)
            if form == "github"
            else lint_forms.as_lines(findings, unknown, files, hidden=hidden, color=in_colour(sys.stdout))
        )
        for line in lines:
            click.echo(line)


def _split(option: str, given: tuple[str, ...]) -> tuple[str, ...]:
    found = tuple(part.strip() for text in given for part in text.split(",") if part.strip())
    if given and not found:
        raise UsageError(f"{option} names no finding", "Name some, as in weights-desynced,missing-set-epoch.")
    return found
