"""Signs of life of ranks that meet, in torch's store: a rank that is killed meanwhile ends the waiting."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import monotonic

from torch.distributed import Store

#: Time between two signs of a rank.
EVERY_S = 1.0
#: A rank counts as dead after this time without a sign. It gives none while it looks for paths, for at most
#: 10 s.
DEAD_AFTER_S = 20.0


class SignsOfLife:
    """The signs that a rank gives and sees."""

    def __init__(self) -> None:
        self._given = 0
        self._next_s = 0.0
        #: By the key of a sign: its last value, and when this rank first saw that value.
        self._seen: dict[str, tuple[bytes, float]] = {}

    def dead(self, store: Store, key: Callable[[int], str], rank: int, others: Iterable[int]) -> int | None:
        """Give a sign of `rank`, and return one of the `others` that no longer gives signs.

        A rank that has given none yet does not count: it may not have been started. Most calls do nothing.
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
