"""Shards that get far more than their share, because one user has very many rows: their chunks are held back.

All rows of a user must meet in one group, and a runner may refuse a group that is too large (docs/limits.md). Within one
batch equal (user, item) pairs are added up already; here this goes on over the batches of a worker, so that the group of a
busy user grows with its distinct items, not with its rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headcount.mechanisms.batches.packing import from_ipc, to_ipc
from headcount.mechanisms.batches.shards import repack, stands_out

_HOT = 8 << 20  # bytes of a shard below which its group is no trouble
_HELD = 64 << 20  # bytes that are held back at most, besides those of one batch


class HotShards:
    """Passes chunks on, but holds back those of hot shards and repacks them. Nothing is lost, and memory is bounded."""

    def __init__(self, shards: int) -> None:
        self._shards = shards
        self._seen = [0] * shards
        self._held: dict[int, list[bytes]] = {}

    def add(self, chunks: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
        """What can go on when the chunks of one batch come."""
        chunks = list(chunks)  # all are counted before any is judged
        for shard, chunk in chunks:
            self._seen[shard] += len(chunk)
        total = sum(self._seen)
        for shard, chunk in chunks:
            if self._seen[shard] < _HOT or not stands_out(self._seen[shard], total, self._shards):
                yield shard, chunk
            else:
                self._held.setdefault(shard, []).append(chunk)
        if self._bytes() > _HELD:
            self._repack()
            if self._bytes() > _HELD // 2:  # mostly distinct pairs: to hold them longer would gain little
                yield from self._release()

    def rest(self) -> Iterator[tuple[int, bytes]]:
        """What was held back, at the end."""
        self._repack()
        yield from self._release()

    def _repack(self) -> None:
        self._held = {shard: [repack(chunks)] for shard, chunks in self._held.items()}

    def _release(self) -> Iterator[tuple[int, bytes]]:
        held, self._held = self._held, {}
        for shard, chunks in held.items():
            for chunk in chunks:
                yield shard, to_ipc(from_ipc(chunk), compress=True)

    def _bytes(self) -> int:
        return sum(len(chunk) for chunks in self._held.values() for chunk in chunks)
