"""Functions that are stopped at a step, or take turns step by step, where a test decides what a step is."""

import threading

import numpy as np


class Killed(BaseException):
    """The end of a process: no handler sees it."""


def countdown(steps):
    """A step that can be taken so many times, and then ends the process."""
    left = [steps]

    def step():
        left[0] -= 1
        if left[0] < 0:
            raise Killed

    return step


class Schedule:
    """Runs several functions at once, one step of one of them at a time, in an order that a seed decides.

    `killed_after` is the number of steps after which the first function ends.
    """

    def __init__(self, seed, *functions, killed_after=None):
        self._generator = np.random.default_rng(seed)
        self._functions = functions
        self._turns = [threading.Semaphore(0) for _ in functions]
        self._back = threading.Semaphore(0)
        self._own = threading.local()
        self._running = set(range(len(functions)))
        self._killed_after = countdown(killed_after) if killed_after is not None else lambda: None
        self.errors = [None] * len(functions)

    def run(self):
        """Runs the functions to their ends; `errors` holds what each one raised."""
        threads = [threading.Thread(target=self._call, args=pair) for pair in enumerate(self._functions)]
        weights = self._generator.dirichlet([0.5] * len(threads))  # also orders in which one is far ahead
        for thread in threads:
            thread.start()
        while self._running:
            running = sorted(self._running)
            chosen = self._generator.choice(running, p=weights[running] / weights[running].sum())
            self._turns[chosen].release()
            self._back.acquire()
        for thread in threads:
            thread.join()

    def step(self):
        """To be called by the functions before each of their steps."""
        number = self._own.number
        if number == 0:
            self._killed_after()
        self._back.release()
        self._turns[number].acquire()

    def _call(self, number, function):
        self._own.number = number
        self._turns[number].acquire()
        try:
            function()
        except BaseException as error:
            self.errors[number] = error
        self._running.discard(number)
        self._back.release()
