"""Distributions of completion times.

The central call is `completion_time`. All numbers are in SI units: seconds, bytes, bits a second;
probabilities are plain numbers. Wherever a number goes, an array may go: arguments broadcast as in
NumPy, and results have the broadcast shape.

Schemes are ``sr-rto`` and ``sr-nack`` (selective repeat), ``gbn`` (go-back-N), ``ec-mds:K,M`` and
``ec-xor:K,M`` (erasure coding of K data by M parity chunks).

Variants:

``paper``
    The formulas of SDR-RDMA (sections 4.2.2 and 4.2.3) exactly as published. Repeated chunks share slots of
    the path with new ones, which makes times of messages longer than a timeout a lower bound; every group of
    an erasure code has its full number of chunks; coding takes no time.
``serial``
    Ours. Each slot carries one chunk, repeated ones first; the last group may be short; encoding and
    decoding take time if `encode_bps` and `decode_bps` are given.
``protocol``
    As ``serial``, but ``sr-nack`` and erasure coding follow Farwrite's receivers: their waits, their
    lost reports, and repairs of missing chunks only. Losses are independent, and at most 0.5. ``sr-nack`` and
    erasure coding take their waits from the protocol, and ignore `rto_rtts` and `beta`.

Where they differ, and how exact each is, is derived in ``docs/model.md`` of the repository.

`farwrite.model.nic` is about NICs instead: their memory, how many queue pairs fit, how often they fail.
"""

from farwrite.model.arguments import Numbers, Words
from farwrite.model.collective import CollectiveTime, StageSum, collective_time
from farwrite.model.completion import CompletionTime, completion_time
from farwrite.model.loss import Markov, chunk_loss, group_failure, parity_overhead
from farwrite.model.sweep import sweep
from farwrite.model.table import Table

__all__ = [
    "CollectiveTime",
    "CompletionTime",
    "Markov",
    "Numbers",
    "StageSum",
    "Table",
    "Words",
    "chunk_loss",
    "collective_time",
    "completion_time",
    "group_failure",
    "parity_overhead",
    "sweep",
]
