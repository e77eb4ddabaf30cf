"""Columns of decimals, of whatever digits: names in one form, floats that are the nearest, and comparisons that are exact.

The type of a column says how many digits it keeps, so nothing here may depend on it: 1.5 and 1.50 are one number.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_EXACT = 2**53  # floats hold whole numbers up to here, and powers of ten up to 10^22
_TENS = 22


def decimal_names(array: pa.Array) -> pa.Array:
    """Decimals as texts in normal form: without an exponent, zeros at the end, or a point behind which nothing stands."""
    text = array.cast(pa.string())
    with_exponent = pc.match_substring(text, "E")  # which Arrow writes for very small and very large ones
    names = pc.ascii_rtrim(pc.ascii_rtrim(text, "0"), ".") if array.type.scale > 0 else text
    if not pc.any(with_exponent).as_py():
        return names
    plain = pa.array([_normal(each) for each in text.filter(with_exponent).to_pylist()], pa.string())
    return pc.replace_with_mask(names, with_exponent.fill_null(False), plain)


def _normal(text: str) -> str:
    plain = format(decimal.Decimal(text), "f")
    return plain.rstrip("0").rstrip(".") if "." in plain else plain


def decimal_floats(array: pa.Array) -> pa.Array:
    """The float64 next to each decimal; Arrow's own cast is off by one where a column keeps many digits."""
    whole = _small(array)
    exact = whole is not None and -_EXACT < whole.min(initial=0) and whole.max(initial=0) < _EXACT
    if whole is None or not exact or array.type.scale not in range(_TENS + 1):
        return array.cast(pa.string()).cast(pa.float64())
    # A quotient of two exact floats is correctly rounded.
    return pa.array(whole / 10.0**array.type.scale, mask=np.asarray(array.is_null()) if array.null_count else None)


def decimal_bins(array: pa.Array, edges: Sequence[int | float]) -> np.ndarray:
    """How many of the edges each decimal reaches, where an edge is the number that is written; anything where it is null."""
    bits = array.type.bit_width
    # A decimal is a whole number of 10^-scale, so it reaches an edge if it reaches the next such number.
    steps = [math.ceil(Fraction(repr(edge)) * Fraction(10) ** array.type.scale) for edge in edges]
    steps = [max(step, -(1 << (bits - 1))) for step in steps if step < 1 << (bits - 1)]
    whole = _small(array)
    if whole is None:
        return np.searchsorted(
            _in_order(np.array([_bytes(step, bits) for step in steps])), _in_order(_raw(array)), "right"
        )
    least, most = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    return np.searchsorted(np.array([max(step, least) for step in steps if step <= most], np.int64), whole, "right")


def _raw(array: pa.Array) -> np.ndarray:
    """The bytes of each decimal, the lowest first."""
    width = array.type.bit_width // 8
    held = np.frombuffer(array.buffers()[1], np.uint8)
    return held[width * array.offset : width * (array.offset + len(array))].reshape(-1, width)


def _small(array: pa.Array) -> np.ndarray | None:
    """Decimals as whole numbers of 10^-scale, 0 where null; None if one is beyond 64 bits."""
    words = _raw(array).view(np.int32 if array.type.bit_width < 64 else np.int64)
    if array.null_count:
        words = np.where(np.asarray(array.is_null())[:, None], 0, words)
    low = words[:, 0].astype(np.int64)
    sign = low >> 63
    return low if all((words[:, k] == sign).all() for k in range(1, words.shape[1])) else None


def _bytes(number: int, bits: int) -> np.ndarray:
    return np.frombuffer(number.to_bytes(bits // 8, "little", signed=True), np.uint8)


def _in_order(raw: np.ndarray) -> np.ndarray:
    """Numbers as texts of bytes in the order of the numbers: the highest byte first, where negative ones come first."""
    if len(raw) == 0:
        return np.zeros(0, "S1")
    highest = np.ascontiguousarray(raw[:, ::-1])
    highest[:, 0] ^= 0x80
    return highest.view(f"S{raw.shape[1]}").ravel()
