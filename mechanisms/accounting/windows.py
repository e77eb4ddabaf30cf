"""What is protected: all that a user did, or what a user did in one window of time.

With a window, the promise is made to each (user, window) as if it were a user of its own. That is weaker: a user who is there
in n windows is n such units, and a data set without that user is n steps away. So the promise to the whole user is that of
group privacy: from P_i <= e^epsilon P_(i+1) + delta for each step follows

    P_0 <= e^(n epsilon) P_n + delta (1 + e^epsilon + ... + e^((n-1) epsilon)),

which holds for whatever mechanism keeps (epsilon, delta), however its stages use the windows. Laplace noise on a count to which
every window of the user adds attains n epsilon. Proof: docs/proofs/windows.md.
"""

from __future__ import annotations

import dataclasses
import math

from headcount.mechanisms.accounting.budget import sum_up
from headcount.mechanisms.accounting.guarantee import Guarantee, MechanismStep, compose
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.checks import check_whole
from headcount.mechanisms.errors import ParameterError

USER = "user"
USER_WINDOW = "user-window"  # what a user did in one window of a collection, each window being a release of its own
WINDOWS = {USER: None, "user-day": "day", "user-week": "week", "user-month": "month"}
MOST_WINDOWS = 10**6


def window_of(protect: str) -> str | None:
    """The unit of time of a window of protection; None for a user's whole data."""
    if protect not in WINDOWS:
        raise ParameterError(f"protect must be one of {', '.join(WINDOWS)}, got {protect!r}", "protect")
    return WINDOWS[protect]


def over_windows(epsilon: float, delta: float, windows: int) -> tuple[float, float]:
    """The (epsilon, delta) that a user keeps who is there in this many windows, each of which is promised the given one. Both
    are rounded upwards; a delta of 1 promises nothing."""
    windows = check_whole("windows", windows, 1, MOST_WINDOWS)
    if delta == 0 or windows == 1:
        return sum_up([epsilon] * windows), delta
    log_steps = (windows - 1) * epsilon - math.log(-math.expm1(-epsilon)) + math.log(-math.expm1(-windows * epsilon))
    log_delta = math.log(delta) + log_steps
    return sum_up([epsilon] * windows), min(1.0, math.exp(min(log_delta, 0.0)) * (1 + 1e-9))


def over_releases(guarantee: Guarantee, windows: int) -> Guarantee:
    """What a user is promised in total who is there in this many windows, each of which is a release with this guarantee.

    Windows share no draw, and a user's rows in one window reach its own release alone. So data sets with and without the user
    are neighbours in each of these releases, and they compose. (Units within one release do not: `over_windows`.)
    Where users are replaced, who comes in a user's place may be there in other windows, whose number of users is public: then
    nothing is known of the total.
    """
    if guarantee.relation is not Relation.ADD_REMOVE:
        raise ParameterError(
            "a user may be replaced by one who is there in other windows, of which this relation promises nothing: leave out "
            'windows, or give relation="add-remove"',
            "windows",
        )
    total = compose([guarantee] * windows)
    each = {"windows": windows, "epsilon of each": guarantee.epsilon, "delta of each": guarantee.delta}
    return dataclasses.replace(total, mechanisms=(MechanismStep("windows", total.epsilon, total.delta, each),))


def window_description(guarantee: Guarantee, windows: int) -> str:
    """What the unit of a guarantee means, and what it means for a user with more than one."""
    window = window_of(guarantee.unit)
    if window is None:
        return "all that a user did is protected together"
    epsilon, delta = over_windows(guarantee.epsilon, guarantee.delta, windows)
    kept = f"epsilon = {epsilon:.6g} and delta = {delta:.3g}"
    return (
        f"what a user did in one {window} is protected, which is weaker than protecting all that it did: a user who is there "
        f"in {windows:,} {window}s "
        + (f"is promised {kept} in total" if delta < 1 else f"is promised nothing in total (epsilon = {epsilon:.6g})")
    )
