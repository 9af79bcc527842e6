"""Distributions of completion times.

The central call is `completion_time`. All numbers are in SI units: seconds, bytes, bits per second.
Probabilities are numbers from 0 to 1. Each number can also be an array: arguments broadcast as in NumPy,
and results have the broadcast shape.

Schemes are ``sr-rto`` and ``sr-nack`` (selective repeat), ``gbn`` (go-back-N), ``ec-mds:K,M`` and
``ec-xor:K,M`` (erasure coding of K data by M parity chunks).

Variants:

``paper``
    The formulas of SDR-RDMA (sections 4.2.2 and 4.2.3) exactly as published. Repeated chunks share slots of
    the path with new ones, so the times of messages that are longer than a timeout are a lower bound. Every
    group of an erasure code has its full number of chunks. Coding takes no time.
``serial``
    Each slot carries one chunk, and repeated chunks go first. The last group may be short. Encoding and
    decoding take time if `encode_bps` and `decode_bps` are given.
``protocol``
    As ``serial``, but ``sr-nack`` and erasure coding follow Farwrite's receivers: their waits, their
    lost reports, and repairs of missing chunks only. Losses are independent, and at most 0.5. ``sr-nack`` and
    erasure coding take their waits from the protocol, and ignore `rto_rtts` and `beta`.

``docs/model.md`` in the repository derives the variants, their differences and their accuracy.

`farwrite.model.nic` models NICs: their memory, the number of queue pairs that fit, and how often they fail.
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
