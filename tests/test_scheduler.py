"""The scheduler: every item once, lanes in order, any number of threads, errors and nested
calls."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from eckart.scheduler import lanes_for, run_lanes


@pytest.mark.timeout(60)
@pytest.mark.parametrize("threads", [1, 2, 3, 5, 16, 64])
@pytest.mark.parametrize(
    ("items", "lanes"), [(0, 1), (1, 4), (7, 16), (100, 1), (100, 3), (257, 16), (64, 64)]
)
def test_every_item_runs_once_and_each_lane_keeps_its_order(threads, items, lanes):
    for _ in range(20):
        seen: list[list[int]] = [[] for _ in range(lanes)]

        def step(lane, item, scratch):
            if item % 13 == 0:
                time.sleep(1e-4)
            lane.append(item)

        for work in (
            iter(range(items)),
            range(items),
            list(range(items)),
        ):  # a stream, and work that is known as a whole
            for own in seen:
                own.clear()
            run_lanes(work, seen, step, threads)
            assert [own == list(range(i, items, lanes)) for i, own in enumerate(seen)] == [
                True
            ] * lanes


@pytest.mark.timeout(60)
@pytest.mark.parametrize("threads", [1, 2, 16])
def test_an_error_ends_the_run_and_is_raised(threads):
    def step(lane, item, scratch):
        if item == 5:
            raise ValueError("item 5")

    for _ in range(20):
        with pytest.raises(ValueError, match="item 5"):
            run_lanes(range(1000), list(range(8)), step, threads)


@pytest.mark.timeout(60)
def test_an_error_of_the_stream_is_raised():
    def stream():
        yield from range(10)
        raise OSError("no more")

    with pytest.raises(OSError, match="no more"):
        run_lanes(stream(), list(range(4)), lambda lane, item, scratch: time.sleep(1e-4), 4)


@pytest.mark.timeout(60)
def test_a_call_from_inside_a_step_does_not_wait_for_itself():
    total = [[0] for _ in range(8)]

    def inner(lane, item, scratch):
        lane[0] += item

    def outer(lane, item, scratch):
        own = [[0] for _ in range(4)]
        run_lanes(range(20), own, inner, 4)
        lane[0] += sum(a[0] for a in own)

    run_lanes(range(32), total, outer, 4)
    assert sum(a[0] for a in total) == 32 * 190


@pytest.mark.timeout(60)
def test_runs_of_several_callers_do_not_disturb_each_other():
    found = []

    def caller():
        own = [[0] for _ in range(8)]
        run_lanes(
            range(500), own, lambda lane, item, scratch: lane.__setitem__(0, lane[0] + item), 3
        )
        found.append(sum(a[0] for a in own))

    threads = [threading.Thread(target=caller) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == [500 * 499 // 2] * 8


def test_lanes_follow_the_shape_alone():
    assert [lanes_for(n) for n in (0, 1, 2, 3, 63, 64, 10**6)] == [1, 1, 2, 2, 32, 64, 64]
    assert lanes_for(10**6, 2**26, 2**26) == 2


def test_nothing_is_kept_after_a_run():
    import gc
    import weakref

    class Held:
        pass

    gc.collect()
    gc.disable()  # what only the collector would free counts as kept
    try:
        held = Held()
        there = weakref.ref(held)
        run_lanes(range(8), [None] * 8, lambda lane, item, scratch, held=held: None, 4)
        del held
        for _ in range(200):  # a worker lets its last item go a moment after its future is done
            if there() is None:
                break
            time.sleep(0.01)
        assert there() is None
    finally:
        gc.enable()


@pytest.mark.timeout(60)
@pytest.mark.skipif(
    not hasattr(signal, "SIGINT") or sys.platform == "win32", reason="needs POSIX signals"
)
def test_no_worker_is_lost_by_interrupts():
    script = Path(__file__).with_name("interrupted_lanes.py")
    done = subprocess.run(
        [sys.executable, script, "1.5"], capture_output=True, text=True, timeout=50, check=True
    )
    runs, interrupted, idle = map(int, done.stdout.split())
    assert runs > 10
    assert interrupted > 10
    assert idle == 7
