"""The jobs of tests/runners/jobs.py as calls in Python, on the events of tests/golden: quick, as nothing of Beam is run."""

from __future__ import annotations

import argparse
from typing import Any

import headcount
from headcount.functions import arguments
from headcount.pipelines import parser
from headcount.pipelines.command import load
from tests.golden import events
from tests.runners.jobs import JOBS, column, words_of

OF_EVENTS = [job for job, words in JOBS.items() if not {"shuffle", "pan-private"} & {*words.split()}]


def called(job: str, data, **more: Any) -> tuple[headcount.Result, argparse.Namespace]:
    """The result of the call that a command line stands for, and the arguments of that."""
    name, *own = words_of(job, data)
    command = load(name)
    args, _ = parser.parse(command, ["--user", "user", *column(name, own), *own])
    defaults, _ = parser.parse(command, [])
    given = {
        name: value
        for name, value in vars(args).items()
        if value != getattr(defaults, name) and name in {action.dest for action in arguments(command)}
    }
    if "domain" in given:  # a list would be the items themselves
        (one,) = given["domain"]
        name_of, _, range_of = one.partition("=")
        given["domain"] = {name_of: range_of} if range_of else one
    release = {"key_file": data / "key", "release_id": events.RELEASE_ID}
    return getattr(headcount, name.replace("-", "_"))(events.events(), **given, **release, **more), args
