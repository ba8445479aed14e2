"""What launch/agent/torchrun.py shows importlib.metadata: the plugin of torchrun.logs_specs, and nothing else."""

import subprocess
import sys

CODE = """
import sys
from importlib import metadata
def read():
    entries = metadata.entry_points()
    named = {(e.group, e.name, e.value, getattr(e.dist, "name", "")) for g in entries.groups for e in entries.select(group=g)}
    return type(entries), named, [d.metadata["Name"] for d in metadata.distributions(name="distdbg")]
before, function = read(), metadata.entry_points
from distdbg.launch.agent import torchrun
sys.meta_path.insert(0, torchrun._PluginFinder())
after = read()
group = metadata.entry_points(group="torchrun.logs_specs")
print(function is metadata.entry_points, before[0] is after[0], before[2] == after[2], before[1] - after[1] == set())
print(after[1] - before[1])
print(group["distdbg"].dist.name, group["distdbg"].load().__name__)
"""  # noqa: E501


def test_one_entry_point_of_torchrun_is_added_and_no_other_changes():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=60)
    added = ("torchrun.logs_specs", "distdbg", "distdbg.launch.agent.logs_specs:AgentLogsSpecs", "distdbg-agent")
    expected = f"True True True True\n{ {added} }\ndistdbg-agent AgentLogsSpecs\n"
    assert done.stdout == expected, done.stderr
