"""Threads for batches, in a process and in those that are forked from it."""

import os
import select

from headcount.mechanisms.batches.threads import in_threads


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
