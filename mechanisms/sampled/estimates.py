"""What the sampled users of a shown item tell of all its users: an estimate, and an interval that holds for shown items.

An item is shown if `least` of its users or more are sampled. Of items near that, the lucky ones are shown: sampled / rate reads
14 % high on average at the number of users with which an item is shown half of the time, and twice too high below. But the
law of what is shown is known. For n users it is Bin(n, rate), given that it is `least` or more, and rate and least are public.

    count: the n for which a shown item has fewer sampled users as often as it has more, ties halved. So it is too high as
        often as it is too low, at every n. Far from the threshold it is sampled / rate.
    low, high: all n for which neither this number of sampled users or more, nor this or fewer, has a chance of 2.5 % or less
        among shown items. For every n they hold it with a chance of 95 % or more, given that the item is shown.

Proof that each is one cut: for n' > n the quotient of the two distributions at s is C(n', s) / C(n, s) up to a factor, which
rises in s. So what is shown rises stochastically with n, whatever `least` is. All of this is post-processing.

Near the threshold the sample tells little: an item that was sampled just `least` times may have `least` users, and reads so,
with a `high` above what sampled / rate says.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pyarrow as pa

from headcount.mechanisms.sampled.divergence import chance_shown
from headcount.mechanisms.sampled.plan import least_count

_MISSED = 0.025  # on either side of an interval
_NORMAL = 1.959963984540054  # what a normal error is beyond with that chance, in standard deviations

# Numbers of users with which an item would be shown less often than this are not looked at: floats do not reach there.
_NEVER = 1e-250


def with_estimates(rows: pa.RecordBatch, rate: Fraction, least: int) -> pa.RecordBatch:
    """Rows item, sampled of all items with `least` sampled users or more, as item, count, noise_stddev, low, high, sampled.

    `noise_stddev` is that of a normal error with the interval from low to high; far from the threshold it is
    sqrt(count (1 - rate) / rate), that of the sample.
    """
    sampled, place = np.unique(np.asarray(rows.column("sampled")), return_inverse=True)
    count, low, high = (column[place].astype(float) for column in estimate_users(sampled, rate, least))
    columns = {"item": rows.column("item"), "count": pa.array(count), "noise_stddev": (high - low) / (2 * _NORMAL)}
    return pa.RecordBatch.from_pydict({**columns, "low": low, "high": high, "sampled": rows.column("sampled")})


def estimate_users(
    sampled: np.ndarray, rate: Fraction | float, least: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Elementwise the estimate, `low` and `high`, as integers, for these numbers of sampled users of an item that is shown from
    `least` on."""
    sampled, p = np.asarray(sampled, np.int64), float(rate)

    def among_shown(users: np.ndarray, at_least: np.ndarray) -> np.ndarray:
        """The chance of this number of sampled users or more, of n users, given that the item is shown."""
        return chance_shown(users, at_least, p) / np.maximum(chance_shown(users, least, p), _NEVER)

    def halved(users: np.ndarray) -> np.ndarray:
        return (among_shown(users, sampled) + among_shown(users, sampled + 1)) / 2

    below, above = sampled - 1, np.ceil((sampled + 1) / p).astype(np.int64)
    low = least_count(below, above, lambda users: among_shown(users, sampled) > _MISSED)
    high = least_count(below, above, lambda users: among_shown(users, sampled + 1) >= 1 - _MISSED) - 1
    count = least_count(below, above, lambda users: halved(users) >= 0.5)
    nearer = (count > low) & (0.5 - halved(count - 1) < halved(count) - 0.5)
    return count - nearer, low, high
