"""Seconds of CPU of each test and of the processes that it waited for; pytest ends with the ten dearest.

On a machine that others use as well they say more than the time that passes. `--junitxml=FILE` keeps those of all
tests, as the property "cpu_s". What a fixture of a module or of the session costs counts for the first test that asks.
The share of the time in which the cores were busy tells how much of the rest is spent where no test waits for it
(collection, hosts of Slurm and ssh), and whether more workers could compute more.
"""

from __future__ import annotations

import resource
import time
from collections import Counter
from collections.abc import Iterator

import psutil
import pytest

NAME = "cpu_s"
SHOWN = 10
LEAST_S = 1.0


def spent_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(part.ru_utime + part.ru_stime for part in used)


def idle_s() -> float:
    """Of all cores of the machine, since it was started."""
    times = psutil.cpu_times()
    return times.idle + getattr(times, "iowait", 0.0)


class CpuCosts:
    def __init__(self) -> None:
        self.began = time.monotonic(), idle_s()
        self.before_s = 0.0
        self.costs: dict[str, float] = {}

    def pytest_collection_finish(self) -> None:
        self.before_s = spent_s()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> Iterator[None]:
        report = yield
        if call.when == "teardown":
            now_s = spent_s()
            report.user_properties.append((NAME, round(now_s - self.before_s, 2)))
            self.before_s = now_s
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Where tests run, and again where pytest-xdist collects its workers' reports."""
        if report.when == "teardown":
            self.costs[report.nodeid] = dict(report.user_properties).get(NAME, 0.0)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        files: Counter[str] = Counter()
        for name, cost_s in self.costs.items():
            files[name.partition("::")[0]] += cost_s
        dearest = [*files.most_common(SHOWN), *Counter(self.costs).most_common(SHOWN)]
        if shown := [(name, cost_s) for name, cost_s in dearest if cost_s >= LEAST_S]:
            began_s, idle_before_s = self.began
            cores = psutil.cpu_count() or 1
            whole_s = max(1e-3, cores * (time.monotonic() - began_s))
            busy = 1 - (idle_s() - idle_before_s) / whole_s
            counted = f"{sum(files.values()):.0f} s of CPU"
            terminalreporter.section(f"{counted} of {whole_s:.0f} s; {cores} cores, {busy:.0%} busy")
            for name, cost_s in shown:
                terminalreporter.write_line(f"{cost_s:7.1f} s  {name}")
