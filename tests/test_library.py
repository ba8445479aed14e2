"""What scripts may import: cheap, harmless outside a run, and without torch."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

import distdbg
from distdbg.protocol.page import read_page
from distdbg.worker import session
from distdbg.worker.page import PageWriter


def test_outside_a_job(monkeypatch):
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    assert (distdbg.rank(), distdbg.world_size(), distdbg.is_rank_zero()) == (0, 1, True)
    distdbg.tick()
    distdbg.tick(step=3)


@pytest.mark.parametrize(("rank", "expected"), [("0", 42), ("3", None)])
def test_rank_zero_only(monkeypatch, rank, expected):
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", "4")

    @distdbg.rank_zero_only
    def answer(base, *, plus):
        """Adds."""
        return base + plus

    assert answer(40, plus=2) == expected
    assert (answer.__name__, answer.__doc__) == ("answer", "Adds.")
    assert distdbg.world_size() == 4


@pytest.mark.parametrize(("step", "seen"), [(7, 7), (None, 0), ("three", -1), (1 << 80, -1), (2.5, -1)])
def test_tick_in_a_run_writes_the_page_and_never_raises(monkeypatch, tmp_path, step, seen):
    path = tmp_path / "00000.page"
    monkeypatch.setattr(session, "current", SimpleNamespace(page=PageWriter(str(path), 0, 1)))
    distdbg.tick(step)
    assert read_page(path.read_bytes()).user_step == seen


def test_importing_it_loads_next_to_nothing():
    code = "import sys; before = set(sys.modules); import distdbg; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {"distdbg", "__future__"}


def test_see_memory_usage_prints_figures_and_collects_only_where_asked(monkeypatch, capsys):
    import gc

    monkeypatch.delenv("RANK", raising=False)
    collected = []
    monkeypatch.setattr(gc, "collect", lambda *_: collected.append(1))
    distdbg.see_memory_usage("before")
    kept = bytearray(200 << 20)
    kept[::4096] = b"x" * len(kept[::4096])
    distdbg.see_memory_usage("after")
    assert not collected
    distdbg.see_memory_usage("collected", force=True)
    assert collected == [1]
    out = capsys.readouterr().out
    first, second, _ = (part for part in out.split("CPU Virtual Memory: used")[:3])
    assert first.startswith("before\nMA 0.00 GB") and "RSS" in first
    assert "(+0.2" in second or "(+0.19" in second, second
    monkeypatch.setenv("RANK", "1")
    distdbg.see_memory_usage("silent")
    assert capsys.readouterr().out == ""


def test_see_memory_usage_has_torchs_counts_and_what_changed(monkeypatch, capsys):
    from distdbg.worker import memory_line

    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setattr(memory_line, "_last", {})
    stats = {}

    def use(allocated_gb, reserved_gb):
        for name, (current, peak) in (("allocated", (allocated_gb, 1.5)), ("reserved", (reserved_gb, 2.75))):
            stats[f"{name}_bytes"] = {"all": {"current": int(current * 2**30), "peak": int(peak * 2**30)}}

    use(1.25, 2)
    memory = SimpleNamespace(memory_stats_as_nested_dict=lambda: stats)
    cuda = SimpleNamespace(is_available=lambda: True, is_initialized=lambda: True, memory=memory)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    distdbg.see_memory_usage("before")
    assert "MA 1.25 GB  Max_MA 1.50 GB  CA 2.00 GB  Max_CA 3 GB  | RSS" in capsys.readouterr().out
    use(1.75, 1.5)
    distdbg.see_memory_usage("after")
    assert "MA 1.75 GB (+0.50)  Max_MA 1.50 GB  CA 1.50 GB (-0.50)  Max_CA 3 GB  | RSS" in capsys.readouterr().out


def test_see_memory_usage_never_raises(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    broken = SimpleNamespace(is_available=lambda: True, is_initialized=lambda: 1 / 0)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=broken))
    distdbg.see_memory_usage("x")
