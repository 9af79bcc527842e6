"""Distributions of the completion times of messages.

The main function is `completion_time`. Times are in seconds, sizes in bytes, and rates in bits per second.
Probabilities are numbers from 0 to 1. Each number can also be an array: arguments broadcast as in NumPy, and
results have the broadcast shape.

Schemes are ``sr-rto`` and ``sr-nack`` (selective repeat), ``gbn`` (go-back-N), ``ec-mds:K,M`` and
``ec-xor:K,M`` (erasure coding of K data by M parity chunks).

Variants:

``paper``
    The formulas of the SDR-RDMA paper (sections 4.2.2 and 4.2.3), exactly as published. A repeated chunk
    and a new chunk can share a slot of the path, so the time of a message that is longer than a timeout is a
    lower bound. Every group of an erasure code has its full number of chunks. Coding takes no time.
``serial``
    Each slot of the path carries one chunk, and repeated chunks are sent before new chunks. The last group of
    a message may have fewer chunks. Encoding and decoding take time if `encode_bps` and `decode_bps` are
    given.
``protocol``
    As ``serial``, but ``sr-nack`` and erasure coding follow Farwrite's receivers: a receiver waits before it
    sends a report, reports can be lost, and only missing chunks are repeated. These schemes need independent
    losses with a probability of at most 0.5, take their waits from the protocol, and ignore `rto_rtts` and
    `beta`.

``docs/model.md`` in the repository derives the variants, and describes their differences and their accuracy.

`farwrite.model.nic` models NICs: their memory and logic, the number of queue pairs that fit, and how often
NICs fail.
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
