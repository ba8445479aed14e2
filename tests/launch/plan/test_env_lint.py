import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from distdbg.launch.plan.environment import lint


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("NCCL_DEUBG", "INFO", "did you mean NCCL_DEBUG?"),
        ("NCCL_ASYNC_ERROR_HANDLING", "1", "write TORCH_NCCL_ASYNC_ERROR_HANDLING"),
        ("TORCH_NCCL_TRACE_BUFFER_SIZE", "100", "write TORCH_FR_BUFFER_SIZE"),
        ("NCCL_WORK_FIFO_DEPTH", "8", "up to 2.21 only"),
        ("TORCH_NCCL_BLOCKING_WAIT", "1", "watchdog"),
        ("NCCL_P2P_DISABLE", "1", "hides"),
        ("GLOO_SOCKET_IFNAME", "^lo,docker0", "without NCCL's ^"),
        ("NCCL_DEBUG", "TRACE", "INFO says as much"),
        ("TORCH_DISTRIBUTED_DEBUG", "BOGUS", "raises at import"),
        ("TORCH_DISTRIBUTED_DEBUG", "DETAIL", "segfaults"),
    ],
)
def test_what_deserves_a_word(name, value, says):
    notes = lint({name: value})
    assert len(notes) == 1, notes
    assert name in notes[0]
    assert says in notes[0]


def test_both_spellings_of_the_allocator_settings():
    both = {"PYTORCH_ALLOC_CONF": "a:b", "PYTORCH_CUDA_ALLOC_CONF": "a:b"}
    assert "both set" in lint(both)[0]
    assert lint({"PYTORCH_ALLOC_CONF": "a:b"}) == []


def test_what_is_well_is_left_alone():
    well = {"NCCL_DEBUG": "INFO", "NCCL_IB_DISABLE": "0", "GLOO_SOCKET_IFNAME": "eth0", "TORCH_FR_BUFFER_SIZE": "2000"}
    assert lint({**well, "TORCH_NCCL_ENABLE_MONITORING": "1", "HOME": "/", "TORCH_HOME": "/x"}) == []


def test_old_torch_reads_the_old_names_only():
    assert lint({"TORCH_NCCL_TRACE_BUFFER_SIZE": "9"}, "2.8.0") == []
    assert lint({"TORCH_NCCL_TRACE_BUFFER_SIZE": "9"}, "2.9.1+cu128") != []
    assert lint({"NCCL_BLOCKING_WAIT": "0"}, "2.8.0") != []


def test_names_that_others_read_are_nobodys_mistake():
    """Set by container images and network plug-ins."""
    assert lint({"NCCL_VERSION": "2.29.7-1", "NCCL_HOME": "/usr", "NCCL_FASTRAK_IFNAME": "eth1"}) == []


def test_names_that_the_installed_torch_reads_are_known():
    spec = find_spec("torch")
    assert spec is not None and spec.origin is not None
    sources = (Path(spec.origin).parent / "distributed").rglob("*.py")
    pattern = re.compile(r"""(?:environ(?:\.get\(|\[)|getenv\()\s*["'](TORCH_\w+)""")
    names = {name for path in sources for name in pattern.findall(path.read_text(encoding="utf-8"))}
    assert "TORCH_DIST_INIT_BARRIER" in names
    assert [note for name in sorted(names) for note in lint({name: ""}) if "nothing is known" in note] == []
