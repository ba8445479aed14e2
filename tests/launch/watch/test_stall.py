"""The watch for stalls over made-up time series: what trips it, when, and what must not."""

import time

import pytest

from distdbg.launch.watch.stall import StallWatch
from distdbg.protocol.progress import RankSample

MB = 1 << 20


class Job:
    """Ranks seen once a second. `during` says what each does in a stretch of time; words are kept with their time."""

    def __init__(self, hang="auto", startup="auto", *, ranks=4, nodes=2, simulated=False, **sample):
        self.watch = StallWatch(hang, startup, simulated=simulated)
        self.now = 1000.0
        self.begun = self.now
        self.nodes = nodes
        self.samples = {r: RankSample(r, 0, 0.0, "starting", **sample) for r in range(ranks)}
        self.heard_at = dict.fromkeys(self.samples, self.now)
        self.words = []

    def during(self, seconds, *, moves=(), cpu=None, bytes_=None, phase=None, step=1, silent_nodes=(), completes=None,
               child=None):  # fmt: skip
        """`moves`: ranks that get on each second. `cpu`, `bytes_`, `child`: what each rank uses a second, {rank:
        amount}. `completes`: how many collectives each device completes a second, where the recorders say so."""
        for _ in range(int(seconds)):
            self.now += 1.0
            for rank in self.samples:
                if rank in moves:
                    self.heard_at[rank] = self.now - 0.3
                self.samples[rank] = self._next(rank, rank in moves, step, phase, cpu or {}, bytes_ or {})
                lived = self.samples[rank].child_s + (child or {}).get(rank, 0.0)
                self.samples[rank] = self.samples[rank]._replace(child_s=lived)
                if completes is not None:
                    known = (self.samples[rank].completed or 0) + completes.get(rank, 0)
                    self.samples[rank] = self.samples[rank]._replace(completed=known)
            for node in range(self.nodes):
                if node not in silent_nodes:
                    own = [s for r, s in self.samples.items() if r % self.nodes == node]
                    self.watch.add(self.now, node, own)
            for tenth in range(10):
                word = self.watch.check(self.now + tenth / 10)
                if word is not None:
                    self.words.append((round(self.now - self.begun, 1), word))
        return self

    def _next(self, rank, moves, step, phase, cpu, bytes_):
        """The rank's sample a second later."""
        sample, quiet = self.samples[rank], self.now - self.heard_at[rank]
        if moves:
            sample = sample._replace(heard=sample.heard + 5, step=sample.step + step, calls=sample.calls + 1)
        phase = phase.get(rank, sample.phase) if isinstance(phase, dict) else phase or sample.phase
        moved = (sample.moved or 0) + bytes_.get(rank, 0) if quiet >= 1 else None
        return sample._replace(phase=phase, quiet_s=quiet, cpu_s=sample.cpu_s + cpu.get(rank, 0.0), moved=moved)

    def stops(self, seconds):
        """The watch and all that it watches."""
        self.now += seconds
        return self

    def trains(self, seconds=20, **how):
        return self.during(seconds, moves=self.samples, phase="backward", **how)

    def said(self, *kinds):
        return [word.kind for _, word in self.words if not kinds or word.kind in kinds]


ALL = range(4)


def test_a_job_that_trains_is_never_spoken_of():
    assert Job().trains(10_000).words == []
    assert Job(2).trains(10_000).words == []


def test_nothing_moves_two_looks_then_a_word_and_only_one():
    job = Job(10).trains().during(200)
    assert job.said() == ["suspected", "stalled"]
    (_, first), (at, second) = job.words
    assert 9 <= first.quiet_s < 10 <= second.quiet_s < 12
    assert at == pytest.approx(20 + 10, abs=2)
    assert second.limit_s == 10


def test_auto_never_speaks_within_a_minute():
    job = Job().trains().during(57)
    assert job.words == []
    assert job.during(10).said() == ["suspected", "stalled"]


def test_moving_between_the_looks_takes_the_suspicion_back():
    job = Job(10).trains().during(8)
    assert job.said() == ["suspected"]
    assert job.during(1, moves=[2]).during(7).said() == ["suspected"]


def test_one_rank_that_moves_is_enough():
    assert Job(5).trains().during(300, moves=[3]).said() == []


def test_a_device_that_completes_collectives_moves():
    """The hosts wait for a long queue, in a loop that burns CPU. When the last device stops, it is a hang."""
    spins = {"cpu": dict.fromkeys(ALL, 1.0)}
    job = Job(10, spins=True).trains().during(300, completes={3: 2}, **spins)
    assert job.said() == []
    assert job.during(60, completes={}, **spins).said() == ["suspected", "stalled"]
    assert job.during(5, completes={3: 1}, **spins).said() == ["suspected", "stalled", "moving-again"]


def test_it_is_said_once_that_the_job_moves_again_and_then_it_takes_twice_as_long():
    job = Job(10).trains().during(50).trains(30).during(15)
    assert job.said() == ["suspected", "stalled", "moving-again", "went-on"]
    again = job.words[-2][1]
    assert 48 <= again.quiet_s <= 52
    assert job.during(10).said("stalled") == ["stalled", "stalled"]
    assert job.words[-1][1].limit_s == 20


def test_who_cleans_up_after_a_timeout_does_not_go_on():
    job = Job(10).trains().during(20)
    assert job.during(1, moves=ALL, step=0).during(5).said() == ["suspected", "stalled", "moving-again"]
    assert job.during(2, moves=[0, 1, 2]).during(5).said("went-on") == [], "one does not"
    assert job.during(2, moves=[3]).said("went-on") == ["went-on"]


def test_the_ranks_whose_timeout_was_near_went_on():
    job = Job(600, timeout_s=50.0).trains().during(45, moves=[0, 1])
    assert job.said() == ["timeout-near"]
    assert job.during(3, moves=[2, 3]).said() == ["timeout-near", "went-on"]


def test_auto_learns_from_silences_of_the_same_kind():
    job = Job().trains()
    for _ in range(3):
        job.during(20, phase="other").trains(30)
    job.during(110, phase="other")
    assert job.words == [], "six times twenty seconds"
    assert job.during(20).said() == ["suspected", "stalled"]


def test_a_long_evaluation_does_not_make_a_hang_in_the_middle_of_a_step_longer():
    job = Job().trains()
    job.during(50, phase="other").trains(30)
    job.during(1, phase={0: "backward", 1: "backward", 2: "backward", 3: "other"}).during(64)
    assert job.said() == ["suspected", "stalled"]


# -- before the first steps -------------------------------------------------------------------------------------------


def test_before_the_first_step_the_startup_timeout_counts():
    job = Job().during(1190)
    assert job.said() == ["start-slow"]
    assert job.during(20).said() == ["start-slow", "suspected", "stalled"]


def test_at_startup_eighty_per_cent_of_the_smallest_timeout_of_a_group():
    job = Job(timeout_s=600.0).during(470)
    assert job.said() == ["start-slow"]
    assert set(job.during(20).said()) & {"stalled", "timeout-near"}


def test_a_number_counts_from_the_start_of_the_ranks():
    job = Job(10).during(8)
    assert job.words == []
    assert job.during(6).said() == ["suspected", "stalled"]
    assert job.words[-1][1].limit_s == 10


@pytest.mark.parametrize("life", [{"cpu": {1: 0.9}}, {"bytes_": {1: MB}}, {"child": {1: 0.9}}])
def test_a_start_in_which_one_rank_lives_is_no_hang(life):
    """An import, weights that are built or downloaded, a compiler; the others wait for it in the rendezvous."""
    job = Job(10).during(600, **life)
    assert job.said("suspected", "stalled") == []
    assert job.during(7).said("stalled") == [], "the time counts from the last of it"
    assert job.during(7).said("stalled") == ["stalled"]


def test_one_rank_that_computes_does_not_excuse_a_start_for_ever():
    job = Job(10).during(1190, cpu={1: 1.0})
    assert job.said("suspected", "stalled") == []
    assert job.during(20, cpu={1: 1.0}).said("stalled") == ["stalled"]


def test_rank_that_computes_while_others_wait_in_the_first_barrier_is_no_hang():
    job = Job(60).during(2, cpu={0: 1.0}).during(1, moves=(1, 2, 3), step=0, cpu={0: 1.0})
    assert job.during(300, cpu={0: 1.0}).said("stalled") == []
    assert job.during(90).said("stalled") == ["stalled"]


@pytest.mark.parametrize("steps", [1, 2])
def test_auto_excuses_rank_that_computes_until_the_third_step(steps):
    """It compiles its second step, for example. With a number of seconds, it is excused until the first step only."""
    auto, number = Job(timeout_s=200.0), Job(60, timeout_s=200.0)
    assert auto.during(steps, moves=ALL).during(400, cpu={0: 1.0}).said("stalled") == []
    assert number.during(steps, moves=ALL).during(400, cpu={0: 1.0}).said("stalled") == ["stalled"]


def test_who_gives_a_startup_timeout_has_one_rank_that_computes_called_hung():
    assert Job(10, 30).during(34, cpu={1: 1.0}).said("stalled") == ["stalled"]


def test_a_slow_start_is_looked_at_once_and_not_called_a_hang():
    job = Job().during(58)
    assert job.words == []
    assert job.during(300).said() == ["start-slow"]


def test_ranks_that_wait_for_one_that_loads_are_looked_at():
    """The first rank reads its weights, and the others have had nothing to do for a minute."""
    job = Job().during(300, bytes_={0: 20 * MB})
    assert job.said("start-slow") == ["start-slow"]
    assert job.words[0][0] == pytest.approx(60, abs=5)


def test_a_start_in_which_every_rank_works_is_not_called_slow():
    """But the user hears once where the ranks are: they may as well be in an endless loop."""
    job = Job().during(300, cpu=dict.fromkeys(ALL, 0.5))
    assert job.said() == ["start-busy"]
    assert job.words[0][0] == pytest.approx(60, abs=3)
    assert job.during(100).said() == ["start-busy", "start-slow"]
    assert Job().during(55, cpu=dict.fromkeys(ALL, 1.0)).trains().said() == []


def test_that_a_slow_start_came_to_its_end_is_said():
    """For the report, which then has nothing to say of it."""
    job = Job().during(100).trains(20)
    assert job.said() == ["start-slow", "went-on"]


def test_a_job_that_has_made_a_step_is_not_starting():
    assert Job().during(1, moves=ALL, phase="forward").during(55).said() == []
    assert Job().during(1, moves=ALL, phase="forward").during(300).said("start-slow") == []


def test_a_short_timeout_of_a_side_group_does_not_make_a_slow_start_a_hang():
    job = Job("auto", timeout_s=20.0).during(55)
    assert job.said() == ["timeout-near"]
    assert job.during(10).said() == ["timeout-near", "suspected", "stalled"]


def test_a_startup_timeout_that_was_given():
    assert Job(5, 30).during(28).said() == []
    assert Job(5, 30).during(34).said() == ["suspected", "stalled"]


def test_auto_takes_the_first_steps_for_slow():
    """Compilation: three steps with minutes between them, one rank at work and the others waiting."""
    job = Job()
    for _ in range(2):
        job.during(1, moves=ALL, phase="forward").during(400, cpu={0: 1.0})
    assert job.words == []


def test_a_number_counts_from_the_first_call():
    job = Job(10).during(1, moves=ALL, step=0).during(14)
    assert job.said() == ["suspected", "stalled"]


# -- what is no hang --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hang", [3, 10, "auto"])
def test_bytes_that_move_are_no_hang(hang):
    """A checkpoint of rank 0, the others in a barrier. Said once, after long."""
    job = Job(hang).trains().during(900, bytes_={0: 20 * MB})
    assert job.said("suspected", "stalled") == []
    assert job.said() == ["slow"]
    assert job.words[0][1].why == "bytes"


@pytest.mark.parametrize("hang", [3, 10, "auto"])
def test_all_ranks_compute_alike(hang):
    """An evaluation, on fewer cores than ranks."""
    job = Job(hang).trains().during(900, cpu=dict.fromkeys(ALL, 0.4) | {2: 0.2})
    assert job.said() == ["slow"]
    assert job.words[0][1].why == "cpu"


@pytest.mark.parametrize("hang", [3, 10, "auto"])
def test_all_wait_for_loaders_that_work(hang):
    job = Job(hang).trains().during(900, phase="data", cpu={1: 0.6})
    assert job.said() == ["slow"]
    assert job.words[0][1].why == "data"


def test_the_time_counts_from_the_last_sign_of_life():
    job = Job(10).trains().during(100, bytes_={0: MB})
    job.during(6)
    assert job.said("suspected", "stalled") == []
    assert job.during(10).said("stalled") == ["stalled"]


@pytest.mark.parametrize("phase", ["saving", {0: "saving"}])
def test_a_checkpoint_without_bytes_gets_three_times_as_long(phase):
    """It may gather its parts; but a file system that does not answer is a hang in the end."""
    job = Job(10).trains().during(27, phase=phase)
    assert job.said("stalled") == []
    assert job.during(8).said("stalled") == ["stalled"]


@pytest.mark.parametrize("phase", ["exiting", {1: "exiting"}])
def test_a_rank_at_its_end_gets_three_times_as_long(phase):
    """Its interpreter may need seconds, and the others may wait for it."""
    job = Job(10).trains().during(27, phase=phase)
    assert job.said("stalled") == []
    assert job.during(8).said("stalled") == ["stalled"]


# -- what is one, though something moves ------------------------------------------------------------------------------


def test_a_child_that_computes_is_no_hang_for_twenty_minutes():
    """One rank waits for a compiler, and the others for that rank."""
    job = Job(10).trains().during(1190, child={1: 1.0})
    assert job.said() == []
    assert job.during(20, child={1: 1.0}).said("stalled") == ["stalled"]


def test_a_child_that_wakes_up_now_and_then_is_no_sign_of_life():
    assert Job(10).trains().during(14, child={1: 0.1}).said("stalled") == ["stalled"]


def test_one_rank_that_loops_while_the_others_wait_is_a_hang():
    job = Job(10).trains().during(14, cpu={1: 1.0})
    assert job.said() == ["suspected", "stalled"]


def test_auto_is_patient_with_one_rank_that_computes():
    job = Job().trains().during(170, cpu={1: 1.0})
    assert job.words == []
    assert job.during(20, cpu={1: 1.0}).said() == ["suspected", "stalled"]


def test_crumbs_are_neither_bytes_nor_cpu():
    """A log line now and then, a poll."""
    job = Job(10).trains().during(14, bytes_=dict.fromkeys(ALL, 200), cpu=dict.fromkeys(ALL, 0.01))
    assert job.said() == ["suspected", "stalled"]


@pytest.mark.parametrize("computing", [[1], ALL])
@pytest.mark.parametrize("seconds_of_training", [0, 20])
def test_rank_that_computes_is_no_hang_on_simulated_devices(seconds_of_training, computing):
    """Before the first step and after it; for 20 minutes, as it may be an endless loop. An idle job is not excused."""
    cpu = dict.fromkeys(computing, 1.0)
    job = Job(60, simulated=True, spins=True).trains(seconds_of_training)
    assert job.during(600, cpu=cpu).said("suspected", "stalled") == []
    assert job.during(70).said("suspected", "stalled") == ["suspected", "stalled"]
    endless = Job(60, simulated=True, spins=True).trains(seconds_of_training)
    assert endless.during(1300, cpu=cpu).said("suspected", "stalled") == ["suspected", "stalled"]


def test_where_waiting_spins_cpu_time_is_no_sign_of_life():
    """On an accelerator all ranks burn a core while they wait: that is given three times as long, and no more."""
    job = Job(10, spins=True).trains().during(27, cpu=dict.fromkeys(ALL, 1.0))
    assert job.said("stalled") == []
    assert job.during(8, cpu=dict.fromkeys(ALL, 1.0)).said("stalled") == ["stalled"]


def test_to_come_to_the_end_is_no_progress():
    """A rank that raises because its collective timed out."""
    job = Job(10).trains().during(20)
    job.heard_at[2] = job.now
    job.during(20, phase={2: "exiting"})
    assert job.said() == ["suspected", "stalled"]


def test_a_rank_that_ends_leaves_the_others_hung():
    job = Job(10).trains()
    job.watch.ended(3)
    del job.samples[3]
    assert job.during(14).said() == ["suspected", "stalled"]


def test_without_ranks_there_is_nothing_to_say():
    job = Job(10).trains()
    for rank in ALL:
        job.watch.ended(rank)
    job.samples = {}
    assert job.during(100).words == []


# -- who stood still, and what that is called --------------------------------------------------------------------------


def test_a_job_that_was_suspended_is_given_its_time_anew():
    job = Job(12).trains().during(6).stops(20).during(8)
    assert job.words == []
    assert job.during(8).said() == ["suspected", "stalled"], "and once"


def test_a_night_on_disk_teaches_auto_nothing():
    job = Job().trains().stops(8 * 3600).trains()
    assert job.during(57).words == []
    assert job.during(10).said() == ["suspected", "stalled"]


def test_no_timeout_comes_near_while_nobody_runs():
    assert Job("auto", timeout_s=50.0).trains().during(25).stops(30).during(25).trains().words == []


def test_a_nodes_ranks_that_were_suspended_with_its_agent_are_given_their_time_anew():
    job = Job(12).trains().during(3).during(8, silent_nodes=[1]).during(9)
    assert job.said("stalled") == []
    assert job.during(8).said("stalled") == ["stalled"]


def test_a_launcher_that_is_only_slow_sees_a_hang_in_the_end():
    job = Job(10).trains()
    for _ in range(12):
        job.stops(7).during(1)
    assert job.said() == ["suspected", "stalled"]


# -- timeouts that can be foreseen ------------------------------------------------------------------------------------


def test_a_timeout_is_seen_coming():
    job = Job("auto", timeout_s=50.0).trains().during(45)
    assert job.said() == ["timeout-near"]
    at, word = job.words[0]
    assert at == pytest.approx(20 + 40, abs=1.5)
    assert word.ranks == (0, 1, 2, 3)


def test_a_timeout_of_some_ranks_is_seen_coming_while_others_move():
    job = Job(600, timeout_s=50.0).trains().during(45, moves=[0, 1])
    assert job.said() == ["timeout-near"]
    assert job.words[0][1].ranks == (2, 3)


@pytest.mark.parametrize(("phase", "cpu"), [("other", dict.fromkeys(ALL, 0.8)), ("data", {1: 0.6})])
def test_no_timeout_runs_while_all_compute_or_all_wait_for_loaders_that_work(phase, cpu):
    assert Job("auto", timeout_s=20.0).trains().during(50, phase=phase, cpu=cpu).words == []


def test_bytes_that_one_rank_moves_do_not_stop_the_others_timeout():
    """A download of rank 0, the others in a barrier."""
    assert Job("auto", timeout_s=50.0).trains().during(45, bytes_={0: 20 * MB}).said() == ["timeout-near"]


def test_foreseen_timeouts_that_do_not_come_are_not_said_for_ever():
    job = Job(600, timeout_s=10.0).trains()
    for _ in range(20):
        job.during(9).trains(2)
    assert len(job.said("timeout-near")) == 3


# -- who speaks -------------------------------------------------------------------------------------------------------


def test_nodes_that_are_silent_for_a_moment_are_waited_for():
    job = Job(10).trains().during(5).during(8, silent_nodes=[1])
    assert job.said("stalled") == []
    assert job.during(5, silent_nodes=[1]).said("stalled") == ["stalled"], "but not for ever"


def test_where_no_node_is_heard_it_is_the_watch_that_is_late():
    job = Job(10).trains().during(100, silent_nodes=[0, 1])
    assert job.said("stalled") == []


def test_ranks_without_a_page_are_judged_by_what_they_use():
    watch = StallWatch(10, 30)
    said = []
    for second in range(200):
        busy = min(second, 100) * 0.9
        samples = [RankSample(r, None, float(second), "starting", cpu_s=busy, moved=0) for r in range(2)]
        watch.add(float(second), 0, samples)
        word = watch.check(float(second) + 0.5)
        said += [(second, word.kind)] if word and word.kind != "slow" else []
    assert [what for _, what in said] == ["suspected", "stalled"]
    assert 128 <= said[1][0] <= 136, "thirty seconds from the last sample of life"


def test_the_ranks_that_a_launcher_has_started_take_its_place():
    """Its services move bytes for ever, and count no more; two of its ranks may do something else than compute."""
    watch, said = StallWatch(10, "auto"), []
    for second in range(60):
        services = [RankSample(0, None, float(second), "starting", cpu_s=second * 0.2, moved=second * MB)]
        started = [RankSample(r, None, float(second), "starting", moved=0, driver=0) for r in range(2)]
        watch.add(float(second), 0, services if second < 30 else started)
        word = watch.check(second + 0.5)
        said += [(second, word.kind)] if word else []
    assert [what for _, what in said] == ["slow", "suspected", "stalled"][-len(said) :]
    assert 40 <= said[-1][0] <= 43, "ten seconds after the ranks were found"
    watch.ended(0)
    assert watch.check(70.0) is None


@pytest.mark.parametrize(("awake", "after"), [((), 180), ((2,), 60)])
def test_a_sleep_of_all_ranks_waits_for_nobody(awake, after):
    job = Job().trains()
    for rank, sample in job.samples.items():
        job.samples[rank] = sample._replace(asleep=rank not in awake)
    began = job.now - job.begun
    job.during(200)
    (stalled,) = [t for t, word in job.words if word.kind == "stalled"]
    assert after - 2 <= stalled - began <= after + 5


def costs(nodes):
    """Of one rank: CPU seconds for each second while all is well, and while all wait."""
    watch = StallWatch(10, "auto")
    by_node = [range(n * 8, n * 8 + 8) for n in range(nodes)]
    begun = time.process_time()
    for second in range(5):
        for node, own in enumerate(by_node):
            watch.add(float(second), node, [RankSample(r, second + 1, 0.1, "backward", second, 1, 1.0) for r in own])
        assert watch.check(second + 0.5) is None
    healthy = (time.process_time() - begun) / 5
    begun, said = time.process_time(), []
    for second in range(5, 20):
        for node, own in enumerate(by_node):
            watch.add(float(second), node, [RankSample(r, 5, second - 4.0, "backward", 4, 1, 1.0, 0) for r in own])
        for tenth in range(10):
            word = watch.check(second + tenth / 10)
            said += [word.kind] if word else []
    hung = (time.process_time() - begun) / 15
    assert said == ["suspected", "stalled"]
    return healthy / nodes, hung / nodes


@pytest.mark.slow
def test_a_rank_of_sixteen_thousand_costs_what_one_of_five_hundred_does():
    small = [costs(64) for _ in range(5)]
    large = costs(2048)
    for number in range(2):
        assert large[number] < 4 * max(figures[number] for figures in small), (small, large)
