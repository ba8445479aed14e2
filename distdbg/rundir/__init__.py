"""The run directory: the only place that knows the names of a run's files.

distdbg-runs/<utc>-<name>-<4 hex>/
  job.json  events.jsonl  control  preflight.json  carrier-<which>.log
  slurm.json  batch.sbatch  batch.log  checkpoint-wanted     (of a job that was submitted to Slurm)
  attempts/<n>/nodes/<0000>-<host>/  agent.log torchrun.log events.jsonl metrics.jsonl
  attempts/<n>/ranks/<00003>/        stdout.log stderr.log (+ .index) error.json exit.json facts.jsonl nccl.log
                                     recorder.pickle memory* gradients.jsonl shapes.txt nonfinite/
                                     operations.pickle
                                     profile/steps-<A>-<B>.json.gz
  attempts/<n>/profile/merged-<steps>.json.gz
  attempts/<n>/dumps/<utc>-<reason>/ manifest.json nodes/ stacks/ recorder/ calls/ sources/ (launch/watch/capture.py)
  report/                            report.json report.html report.txt
"""

from distdbg.rundir.files import Attempt, NodeFiles, RankFiles, RunDir
from distdbg.rundir.folders import (
    BISECT_FOLDER,
    DUMPS_FOLDER,
    RUNS_FOLDER,
    create_run_dir,
    find_run_dir,
    folder_for,
    link_latest,
    list_runs,
    make_dump_folder,
    runs_here,
)
from distdbg.rundir.reading import open_regular, refuse_unreadable

__all__ = [
    "BISECT_FOLDER",
    "DUMPS_FOLDER",
    "RUNS_FOLDER",
    "Attempt",
    "NodeFiles",
    "RankFiles",
    "RunDir",
    "create_run_dir",
    "find_run_dir",
    "folder_for",
    "link_latest",
    "list_runs",
    "make_dump_folder",
    "open_regular",
    "refuse_unreadable",
    "runs_here",
]
