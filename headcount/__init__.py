"""Counts of what users do that give no user away, in one call on a frame.

    import headcount

    counts = headcount.histogram(frame, user="user_id", item="page", epsilon=1, delta=1e-8)
    print(counts)            # as the command line shows it
    counts.table             # all rows, as an Arrow table
    counts.report            # what was promised, and what is what
    counts.save("out/")      # the files that the command line would write

There is a function for every command that counts events: `histogram`, `aggregate`, `total`, `funnel`, `retention`, `activity`,
`actives`, `partitions`, `top`, `count_release`, `plume`, `sampled`, `heavy_hitters`, `quantiles`, `distribution`, `shape` and
`choose_bound`; `rehearse`, which measures these on data that is public, and `forecast`, which needs none; and `series` and
`diff`, which tell what changed between releases. A frame is one of pandas or Polars, an Arrow table, batch or reader, a DuckDB
relation, whatever else has `__arrow_c_stream__`, a dict of lists, or a list of dicts. Nothing of Beam is imported.
`headcount.transforms` has the same for Beam pipelines, and `headcount.mechanisms` the parts.
`plan` says what a report in one file costs, `run` makes all releases of it, as the command does, and so on Beam if files are
large or lie elsewhere, and `ledger` says what is spent of an account. `WriteWindows` is the sink of streams, for pipelines of
your own.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

_HERE = os.path.dirname(os.path.abspath(__file__))
if not os.path.isdir(os.path.join(_HERE, "mechanisms")):
    __path__.append(os.path.dirname(_HERE))  # in a checkout the other rooms lie beside this one

from headcount.mechanisms.lazy import lazy_face  # noqa: E402

if TYPE_CHECKING:  # the same names for type checkers; tests/headcount/test_face.py holds both lists together
    from headcount.accounts import ledger as ledger
    from headcount.calls import actives as actives
    from headcount.calls import activity as activity
    from headcount.calls import aggregate as aggregate
    from headcount.calls import choose_bound as choose_bound
    from headcount.calls import count_release as count_release
    from headcount.calls import distribution as distribution
    from headcount.calls import funnel as funnel
    from headcount.calls import heavy_hitters as heavy_hitters
    from headcount.calls import histogram as histogram
    from headcount.calls import partitions as partitions
    from headcount.calls import plume as plume
    from headcount.calls import quantiles as quantiles
    from headcount.calls import retention as retention
    from headcount.calls import sampled as sampled
    from headcount.calls import shape as shape
    from headcount.calls import top as top
    from headcount.calls import total as total
    from headcount.mechanisms.errors import HeadcountError as HeadcountError
    from headcount.mechanisms.errors import InputError as InputError
    from headcount.mechanisms.errors import ParameterError as ParameterError
    from headcount.over_time import diff as diff
    from headcount.over_time import series as series
    from headcount.pipelines.streams.sink import WriteWindows as WriteWindows
    from headcount.reports import plan as plan
    from headcount.reports import run as run
    from headcount.result import Result as Result
    from headcount.studies import forecast as forecast
    from headcount.studies import rehearse as rehearse
    from headcount.version import __version__ as __version__

# Where the public names live.
_ROOMS = {
    "accounts": "ledger",
    "calls": "actives activity aggregate choose_bound count_release distribution funnel heavy_hitters histogram partitions "
    "plume quantiles retention sampled shape top total",
    "mechanisms.errors": "HeadcountError InputError ParameterError",
    "over_time": "diff series",
    "pipelines.streams.sink": "WriteWindows",
    "reports": "plan run",
    "result": "Result",
    "studies": "forecast rehearse",
    "version": "__version__",
}

__all__, __getattr__, __dir__ = lazy_face(__name__, _ROOMS)
