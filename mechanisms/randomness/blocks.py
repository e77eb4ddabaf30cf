"""AES-256 on arrays of blocks: the one cipher from which lane ids and random words come."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.subkeys import KEY_BYTES

Words = npt.NDArray[np.uint64]

WORD = np.dtype("<u8")


class BlockCipher:
    """The cipher under one key, for blocks of two words each, little endian, as an (n, 2) array."""

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise ParameterError(f"a block key is {KEY_BYTES} bytes, got {len(key)}")
        self._cipher = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
        self._output = np.empty(0, dtype=np.uint8)

    def __call__(self, blocks: Words) -> Words:
        """Each block encrypted, until the next call: its memory is used again."""
        size = blocks.size * 8
        if size == 0:
            return np.empty((0, 2), dtype=WORD)
        if len(self._output) < size + 15:  # update_into asks for one byte less than a block on top
            self._output = np.empty(size + 15, dtype=np.uint8)
        self._cipher.update_into(blocks.data.cast("B"), self._output.data)
        return self._output[:size].view(WORD).reshape(-1, 2)
