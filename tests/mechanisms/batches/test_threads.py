"""Threads for batches, in a process and in those that are forked from it."""

import os
import select
import threading

import pytest

from headcount.mechanisms.batches.threads import Parts, ahead, in_threads, side_by_side


def test_a_forked_process_has_threads_of_its_own():
    assert in_threads(abs, [-1, 2]) == [1, 2]
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, bytes(in_threads(abs, [-3])))
        os._exit(0)
    ready, _, _ = select.select([reading], [], [], 60)
    if not ready:
        os.kill(child, 9)
    os.waitpid(child, 0)
    assert ready and os.read(reading, 1) == b"\3"


def test_work_goes_on_while_the_next_item_comes_and_results_keep_their_order():
    working = threading.Event()

    def coming():
        yield 1
        assert working.wait(60), "the first is at work before the second has come"
        yield from (2, 3)

    def work(item):
        working.set()
        return -item

    assert list(ahead(work, coming())) == [-1, -2, -3]


def test_what_fails_ahead_fails_here():
    def refused(item):
        raise ValueError(item)

    with pytest.raises(ValueError, match="1"):
        list(ahead(refused, [1]))


def test_parts_may_use_threads_of_their_own():
    assert side_by_side(lambda k: sum(in_threads(abs, range(-k, 1))), range(20)) == [
        k * (k + 1) // 2 for k in range(20)
    ]


def test_parts_are_made_when_they_are_looked_at_and_held_ones_once():
    made = []

    def number(k):
        made.append(k)
        return k

    parts = Parts.of(1, 2, 3).map(number)
    assert made == [] and len(parts) == 3
    assert parts.each(abs) == [1, 2, 3] and list(parts.map(str)) == ["1", "2", "3"] and parts[1] == 2
    assert sorted(made) == [1, 1, 2, 2, 2, 3, 3]
    made.clear()
    held = parts.held(lambda k: b"%d" % k, int)
    assert list(held) == list(held) == [1, 2, 3] and sorted(made) == [1, 2, 3]
    assert list(parts.numbered()) == [(0, 1), (1, 2), (2, 3)]
