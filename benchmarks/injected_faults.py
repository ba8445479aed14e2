"""Faults planted in clients, one at a time: who is named, by which id, at which line, how soon, with which exit code.

    .venv/bin/python benchmarks/injected_faults.py [how many] [words]      150 take about an hour on two cores

The truth is in tests/inject/faults.py. `words` picks injections whose description has all of them. Prints a line for
each that is not right, and the table at the end; the exit code is 1 where a wrong culprit is named or nothing is said.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.inject.injection import Injection, Outcome, Verdict, all_injections, run, sample

_AT_ONCE = 2
#: Two of Ray's clusters on one machine meet each other, and their actors fail over it.
_ALONE = "ray_train"


def main() -> int:
    most = int(sys.argv[1]) if len(sys.argv) > 1 else 150
    words = sys.argv[2:]
    chosen = [i for i in all_injections() if all(w in str(i) for w in words)][:most] if words else sample(most)
    outcomes = []
    alone = any(injection.client.stem == _ALONE for injection in chosen)
    with ThreadPoolExecutor(1 if alone else _AT_ONCE) as pool:
        for outcome in pool.map(_run, chosen):
            outcomes.append(outcome)
            if not outcome.good or outcome.verdict is not Verdict.RIGHT:
                print(_line(outcome), flush=True)
    for title, some in (("all", outcomes), ("two ranks", [o for o in outcomes if o.injection.world == 2])):
        _table(title, some)
    return int(any(o.verdict in (Verdict.WRONG, Verdict.SILENT) for o in outcomes))


def _run(injection: Injection) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="inject") as folder:
        return run(injection, Path(folder))


def _line(outcome: Outcome) -> str:
    flags = [f"[{outcome.verdict.value}]"]
    flags += [] if outcome.line else ["[line not named]"]
    flags += [] if outcome.code else ["[exit code]"]
    flags += [f"[{outcome.orphans} orphans]"] if outcome.orphans else []
    flags += ["[never met]"] if outcome.seconds is None else []
    return f"{outcome.injection} {' '.join(flags)}\n    {outcome.said[:600]}"


def _table(title: str, outcomes: list[Outcome]) -> None:
    if not outcomes:
        return
    counts = Counter(o.verdict for o in outcomes)
    print(f"\n{title}: {len(outcomes)}")
    for verdict in Verdict:
        print(f"  {verdict.value:45} {counts[verdict]:4}  {counts[verdict] / len(outcomes):.0%}")
    print(f"  {'line named':45} {sum(o.line for o in outcomes):4}")
    print(f"  {'exit code of the culprit':45} {sum(o.code for o in outcomes):4}")
    print(f"  {'orphans':45} {sum(o.orphans for o in outcomes):4}")
    for what, hangs in (("hangs", True), ("ends", False)):
        times = [o.seconds for o in outcomes if o.seconds is not None and o.injection.fault.hangs == hangs]
        if times:
            print(f"  {f'median s, {what}':45} {statistics.median(times):6.1f}")


if __name__ == "__main__":
    sys.exit(main())
