"""Signs of life of joining ranks in torch's store, so that no rank waits for a killed rank."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import monotonic

from torch.distributed import Store

#: Seconds between two signs of life of a rank.
EVERY_S = 1.0
#: A rank counts as dead after this number of seconds without a sign of life. A rank gives no sign while it
#: looks for paths, which takes at most 10 s.
DEAD_AFTER_S = 20.0


class SignsOfLife:
    """The signs of life that a rank gives, and those of other ranks that it sees."""

    def __init__(self) -> None:
        self._given = 0
        self._next_s = 0.0
        #: For the key of each sign: its last value, and the time at which this rank first saw this value.
        self._seen: dict[str, tuple[bytes, float]] = {}

    def dead(self, store: Store, key: Callable[[int], str], rank: int, others: Iterable[int]) -> int | None:
        """Give a sign of life of `rank`. Return one of the `others` that has stopped giving signs, or None.

        A rank that has never given a sign does not count as dead, because it may not have been started. Most
        calls return at once, because a sign is due only every `EVERY_S` seconds.
        """
        now_s = monotonic()
        if now_s < self._next_s:
            return None
        self._next_s = now_s + EVERY_S
        self._given += 1
        store.set(key(rank), str(self._given))
        for other in others:
            place = key(other)
            if not store.check([place]):
                continue
            value = store.get(place)
            last, since_s = self._seen.get(place, (b"", now_s))
            if value != last:
                self._seen[place] = value, now_s
            elif now_s - since_s > DEAD_AFTER_S:
                return other
        return None
