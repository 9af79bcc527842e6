"""Settings: the arguments that `completion_time` and `collective_time` have in common."""

from __future__ import annotations

from farwrite import _native
from farwrite.model.arguments import (
    Argument,
    Numbers,
    Words,
    broadcast,
    counts,
    numbers,
    places,
    words,
)
from farwrite.model.loss import PROBABILITY, Markov


def settings(
    scheme: Words,
    message_bytes: Numbers,
    bandwidth_bps: Numbers,
    rtt_s: Numbers,
    loss_chunk: Numbers | Markov,
    chunk_bytes: Numbers,
    rto_rtts: Numbers | None,
    beta: Numbers,
    variant: str,
    encode_bps: Numbers | None,
    decode_bps: Numbers | None,
    sites: Numbers | None = None,
) -> tuple[tuple[int, ...], _native.Settings, list[int]]:
    """Return the shape of the points, their settings, and the column of `sites`, empty if `sites` is None."""

    def optional(name: str, unit: str, value: Numbers | None) -> Argument | None:
        return None if value is None else numbers(name, unit, value)

    if not isinstance(variant, str):
        raise TypeError(f"variant must be one string, not {variant!r}")
    bursts = isinstance(loss_chunk, Markov)
    loss = (
        loss_chunk.arguments()
        if isinstance(loss_chunk, Markov)
        else [numbers("loss_chunk", PROBABILITY, loss_chunk)]
    )
    arguments: dict[str, Argument | None] = {
        "scheme": words("scheme", scheme),
        "message_bytes": numbers("message_bytes", "bytes", message_bytes),
        "bandwidth_bps": numbers("bandwidth_bps", "bit/s", bandwidth_bps),
        "rtt_s": numbers("rtt_s", "s", rtt_s),
        "chunk_bytes": numbers("chunk_bytes", "bytes", chunk_bytes),
        "beta": numbers("beta", "round trips", beta),
        "rto_rtts": optional("rto_rtts", "round trips", rto_rtts),
        "encode_bps": optional("encode_bps", "bit/s", encode_bps),
        "decode_bps": optional("decode_bps", "bit/s", decode_bps),
        "sites": None if sites is None else counts("sites", "sites", sites),
    }
    given = {name: argument for name, argument in arguments.items() if argument is not None}
    shape, columns = broadcast([*given.values(), *loss])
    column = dict(zip(given, columns, strict=False))
    losses = columns[len(given) :]
    packets = losses.pop().tolist() if bursts else None
    with places(shape):
        native = _native.Settings(
            scheme=column["scheme"].tolist(),
            message_bytes=column["message_bytes"],
            bandwidth_bps=column["bandwidth_bps"],
            rtt_s=column["rtt_s"],
            loss=losses,
            packets_per_chunk=packets,
            chunk_bytes=column["chunk_bytes"],
            rto_rtts=column.get("rto_rtts"),
            beta=column["beta"],
            variant=variant,
            encode_bps=column.get("encode_bps"),
            decode_bps=column.get("decode_bps"),
        )
    return shape, native, column["sites"].tolist() if sites is not None else []
