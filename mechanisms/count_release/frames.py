"""The top of a histogram of unknown items, and private draws from it: the Unknown Domain Gumbel mechanism.

A histogram counts the distinct users of each item. Its *frame* is the k_bar items with the most users, and its *base* the
users of the item of rank k_bar + 1 (0 if there is none). A draw takes one candidate: item i of the frame with probability
proportional to exp(epsilon * users(i)), or "nothing" (bot) with that of exp(epsilon * (base + T)). Any choice among equal
counts is private; here they go by the canonical order of the items, so that sharding never matters.

Guarantee: with T as `threshold` gives it, one draw is delta-approximate rho-zCDP, with rho as `draw_cost` gives it, also
when items that were drawn before have left the frame, as long as the base stays that of the whole histogram.
Proof: docs/proofs/count-release.md.

Proof (Durfee, Rogers 2019; here for both relations). Between neighbours each count, and so the base, moves by 0 or 1 in the
same direction if a user is added or removed. If one is replaced, it moves by at most 1 in either direction. So the range of all
moves is u = 1 or u = 2. On the candidates that both frames share, epsilon times the score has a range of at most u epsilon, and
a draw from these alone is (u epsilon)^2 / 8-zCDP (`exponential.select`). Let i be in the frame of D alone. In D' it has at most
base' users, so in D at most base + u. For if D has the user more, base' + 1 <= base + 1; if D has the user less, base' <= base
+ 1. If one is replaced, base' + 1 <= base + 2. So all such items together are drawn, in place of bot, with probability at most
k_bar / (k_bar + e^(epsilon (T - u))), which is below delta for T = u + ln(k_bar / delta) / epsilon.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.domain import arrow_type, domain_digest
from headcount.mechanisms.batches.names import Names, canonical_order, hash64
from headcount.mechanisms.batches.packing import pack, unpack
from headcount.mechanisms.batches.run_sums import sum_by_code
from headcount.mechanisms.batches.shards import unite
from headcount.mechanisms.calibration.bound import Bound
from headcount.mechanisms.checks import check_whole
from headcount.mechanisms.choice.exponential import Integers, select_by_excess
from headcount.mechanisms.counting.evidence import Evidence, Origin
from headcount.mechanisms.counting.sums import split_sums
from headcount.mechanisms.errors import InputError
from headcount.mechanisms.randomness.lane_ids import decision_lane_ids
from headcount.mechanisms.randomness.lanes import GEOMETRIC_LIMIT, Lanes
from headcount.mechanisms.randomness.subkeys import block_key, lane_key

#: Frames of more rows are refused: all of a frame is looked at in every draw.
LARGEST_FRAME = 10**6

# Thresholds are multiples of 1 / GRID. An epsilon has this number of binary digits: its products with scores then fit int64.
GRID = 2**10
_EPSILON_BITS = 20


class Frame(NamedTuple):
    """The top of a histogram: distinct items with their users, most first, the sums to release, and the base."""

    items: Names
    users: np.ndarray  # int64
    values: np.ndarray  # int64: what the users' capped counts add up to
    base: int

    def digest(self, key: bytes) -> bytes:
        """A keyed digest of the whole frame."""
        digest = hashlib.blake2b(key=key, digest_size=32, person=b"headcount.frame")
        digest.update(str(domain_digest(self.items)).encode())  # which has a fixed length
        for numbers in (self.users, self.values, np.array([self.base])):
            digest.update(numbers.astype("<i8").tobytes())
        return digest.digest()


def check_frame(k_bar: object) -> int:
    """The size of a frame, or an error that names it."""
    return check_whole("k_bar", k_bar, 1, LARGEST_FRAME)


def on_grid(epsilon: Fraction) -> Fraction:
    """An epsilon rounded down to so few binary digits that draws with it are fast; it loses a millionth at most."""
    exponent = _EPSILON_BITS - epsilon.numerator.bit_length() + epsilon.denominator.bit_length()
    return Fraction(math.floor(epsilon * Fraction(2) ** exponent)) / Fraction(2) ** exponent


def threshold(epsilon: Fraction, k_bar: int, delta: Fraction, relation: Relation) -> Fraction:
    """T, rounded up to the grid: how far above the base bot is."""
    log = Fraction(math.log(k_bar) - math.log(delta.numerator) + math.log(delta.denominator)) + Fraction(1, 2**36)
    return Fraction(math.ceil((relation.users + log / epsilon) * GRID), GRID)


def draw_cost(epsilon: Fraction, relation: Relation) -> Fraction:
    """The rho of one draw: epsilon^2 / 8, or if a user is replaced epsilon^2 / 2."""
    return (relation.users * epsilon) ** 2 / 8


def draw_excess(users: np.ndarray, base: int, epsilon: Fraction, threshold: Fraction) -> tuple[Integers, int]:
    """The exponents of a draw from these candidates and, as the last, bot: for `select_by_excess`.

    Neglected, as there: what is beyond GEOMETRIC_LIMIT is as good as impossible, however far beyond. So the exponents are
    for one draw: when an item has left, those of the next must be made anew.
    """
    return _excess(np.append(users * GRID, base * GRID + int(threshold * GRID)), epsilon)


def named_excess(users: np.ndarray, epsilon: Fraction) -> tuple[Integers, int]:
    """The same without bot, for candidates that are public."""
    return _excess(users * GRID, epsilon)


def _excess(scores: np.ndarray, epsilon: Fraction) -> tuple[Integers, int]:
    denominator = epsilon.denominator * GRID
    limit = -(-(GEOMETRIC_LIMIT + 1) * denominator // epsilon.numerator)
    gaps = np.minimum(scores.max() - scores, min(limit, 2**62))
    if (limit + 1) * epsilon.numerator >= 2**63:
        gaps = gaps.astype(object)
    return gaps * epsilon.numerator, denominator


def drawn_without_replacement(
    frame: Frame, subkey: bytes, most: int, excess: Callable[[np.ndarray], tuple[Integers, int]]
) -> Names:
    """The items that are drawn one by one, at most `most`, until bot is drawn or none is left.

    `excess` gives the exponents of a draw from candidates by their numbers of users.
    """
    digest = frame.digest(lane_key(subkey))
    lane = Lanes(block_key(subkey, digest), decision_lane_ids(lane_key(subkey), digest, 1))
    alive = np.arange(len(frame.items))
    rows: list[int] = []
    while len(rows) < most and len(alive):
        place = select_by_excess(*excess(frame.users[alive]), lane)
        if place == len(alive):
            break
        rows.append(int(alive[place]))
        alive = np.delete(alive, place)
    return frame.items.take(pa.array(rows, pa.int64()))


def sum_users(batch: pa.RecordBatch, shards: int) -> Iterator[tuple[int, bytes]]:
    """Users and sum of each item of a bounded batch, in (shard, Arrow stream) chunks by a hash of the item.

    Every (user, item) pair must be one row, as in all that a bounding step gives, and a user be in one batch only.
    """
    item = batch.column("item")
    if not isinstance(item, pa.DictionaryArray):
        item = item.dictionary_encode()
    codes, size = np.asarray(item.indices).astype(np.int64), len(item.dictionary)
    users = np.bincount(codes, minlength=size)
    values = sum_by_code(codes, np.asarray(batch.column("count")), size)
    present = np.flatnonzero(users)
    return split_sums(
        item.dictionary.take(pa.array(present)), {"users": users[present], "value": values[present]}, shards
    )


def top_rows(chunks: Iterable[bytes], most: int, item_type: type) -> bytes:
    """Adds up the chunks of one or more item shards, and keeps the `most` items with the most users, in that order.

    What it gives is a chunk again: the top of several tops is the top of the whole.
    """
    parts = [unpack(chunk)[0] for chunk in chunks]
    if not parts:
        parts = [
            {"item": pa.array([], arrow_type(item_type)), **dict.fromkeys(("users", "value"), pa.array([], "int64"))}
        ]
    items, code = unite([part["item"] for part in parts])
    if items.type != arrow_type(item_type):
        raise InputError(f"items are of type {items.type}, not {arrow_type(item_type)}; set item_type to match")
    users, values = (
        sum_by_code(code, np.concatenate([np.asarray(part[name]) for part in parts]), len(items))
        for name in ("users", "value")
    )
    if len(items) > most:
        least = np.partition(users, len(users) - most)[len(users) - most]
        kept = np.flatnonzero(users >= least)  # ties may make it more
        items, users, values = items.take(pa.array(kept)), users[kept], values[kept]
    order = canonical_order(items, hash64(items))
    order = order[np.argsort(-users[order], kind="stable")][:most]
    return pack(
        {"item": items.take(pa.array(order)), "users": pa.array(users[order]), "value": pa.array(values[order])}
    )


def make_frame(chunks: Iterable[bytes], k_bar: int, item_type: type) -> Frame:
    """The frame of the tops of all item shards (each of k_bar + 1 rows), and the base, which is fixed here for good."""
    rows, _ = unpack(top_rows(chunks, k_bar + 1, item_type))
    users, values = np.asarray(rows["users"]), np.asarray(rows["value"])
    base = int(users[k_bar]) if len(users) > k_bar else 0
    return Frame(rows["item"][:k_bar], users[:k_bar], values[:k_bar], base)


def frame_of(bounded: Iterable[pa.RecordBatch], bound: Bound, k_bar: int, item_type: type) -> Frame:
    """The frame of bounded batches, without Beam; refused if they are not bounded as the mechanism needs it."""
    batches = list(bounded)
    Evidence.of([], map(Origin.of, batches)).check(bound)
    return make_frame((chunk for batch in batches for _, chunk in sum_users(batch, 1)), k_bar, item_type)
