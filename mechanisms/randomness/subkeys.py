"""How the keys of a step follow from the owner's key: by release, label, public parameters, and what was chosen.

Two steps that differ in any of these have independent keys, up to the strength of BLAKE2b. So another promise means other bits:
no two releases ever share noise that they were not meant to share. What feeds these hashes must not change between versions, or
`ALGORITHM_VERSION` must change with it. Proof: docs/proofs/noise.md.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from headcount.mechanisms.errors import ParameterError

#: Part of every subkey. From the first release on, raise it whenever the same key, id and data would no longer give the same
#: noise: the two would have been drawn from the same words, and not independently.
ALGORITHM_VERSION = 1
KEY_BYTES = 32


def _plain(value: Any) -> Any:
    """`value` as JSON knows it, or a ParameterError for what has no single canonical text."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, Fraction):
        return f"{value.numerator}/{value.denominator}"
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    if isinstance(value, Mapping):
        for name in value:
            if not isinstance(name, str):
                raise ParameterError(f"names of subkey parameters must be text, got {name!r}")
        return {name: _plain(entry) for name, entry in value.items()}
    raise ParameterError(
        "subkey parameters must be text, integers, booleans, None, fractions, lists or mappings of these;"
        f" got a {type(value).__name__}: {value!r}"
    )


def _canonical(parameters: Mapping[str, Any]) -> bytes:
    return json.dumps(_plain(parameters), sort_keys=True, separators=(",", ":")).encode("ascii")


def subkey(
    key: bytes,
    release_id: str,
    label: str,
    parameters: Mapping[str, Any],
    chosen: Mapping[str, Any] | None = None,
) -> bytes:
    """The 32-byte key of one step: a keyed hash of all that must not share random bits with anything else.

    `label` is the step's full label, `parameters` its public parameters, `chosen` what was chosen at run
    time. Fields are length-prefixed and mappings become JSON with sorted keys, so different inputs never have
    the same encoding. Fractions count as the text 'n/d'. Floats are refused, because 1.0 and 1 would be two
    keys for one parameter: pass the exact fraction or text.
    """
    digest = hashlib.blake2b(key=_checked(key), digest_size=KEY_BYTES, person=b"headcount.subkey")
    fields = (
        str(ALGORITHM_VERSION).encode(),
        release_id.encode(),
        label.encode(),
        _canonical(parameters),
        _canonical(chosen or {}),
    )
    for field in fields:
        digest.update(len(field).to_bytes(8, "little"))
        digest.update(field)
    return digest.digest()


def lane_key(subkey: bytes) -> bytes:
    """The key of a step's lane ids."""
    return hashlib.blake2b(key=_checked(subkey), digest_size=KEY_BYTES, person=b"headcount.lane").digest()


def block_key(subkey: bytes, digest: bytes = b"") -> bytes:
    """The AES-256 key of a step's random words; `digest` stands for the whole data the step works on."""
    return hashlib.blake2b(digest, key=_checked(subkey), digest_size=KEY_BYTES, person=b"headcount.block").digest()


def _checked(key: bytes) -> bytes:
    if not isinstance(key, bytes) or len(key) != KEY_BYTES:
        raise ParameterError(f"a key is {KEY_BYTES} bytes; got a {type(key).__name__} of another kind or length")
    return key
