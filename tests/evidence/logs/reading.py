"""Logs of tests: one text, or several by their names, read as `distdbg explain` reads them."""

from collections.abc import Mapping

from distdbg.evidence.logs.assembly import JobLogs
from distdbg.evidence.logs.candidates import Candidates
from distdbg.evidence.logs.job import LogReader
from distdbg.evidence.logs.rank_names import facts_of_name


def read_logs(texts: Mapping[str, str]) -> JobLogs:
    reader = LogReader()
    for name, text in texts.items():
        kept = Candidates()
        kept.feed(text.encode())
        reader.add(name, kept, facts_of_name(name))
    return reader.job()
