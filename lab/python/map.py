"""Measures the time of the map of SDR-RDMA's Fig. 9, evaluated exactly and sampled with NumPy, on one core.

The map has 17 sizes, 9 loss rates and 4 schemes, with mean and 99.9th percentile. The sampler evaluates the
paper's formulas with NumPy: it makes one geometric draw for each chunk of each sample. The program measures a
few samples of each point, and multiplies their time to get the time of 1000 samples. `--samples 1000`
measures all samples, which takes half an hour or more.
"""

import argparse
import os
import platform
import time
from collections.abc import Iterator

import numpy as np
from farwrite import model
from numpy.typing import NDArray

SIZES_BYTES = 2.0 ** np.arange(17, 34)
LOSSES = 10.0 ** np.arange(-9, 0)
SCHEMES = ["sr-rto", "sr-nack", "ec-xor:32,8", "ec-mds:32,8"]
BANDWIDTH_BPS, RTT_S, CHUNK_BYTES = 400e9, 25e-3, 4096
DRAWS_AT_ONCE = 2**20
PAPER_SAMPLES = 1000

Array = NDArray[np.float64]


def exact() -> tuple[Array, Array]:
    """Return mean and 99.9th percentile in seconds, by scheme, size and loss."""
    schemes = np.array(SCHEMES)[:, np.newaxis, np.newaxis]
    sizes = SIZES_BYTES[:, np.newaxis]
    times = model.completion_time(schemes, sizes, BANDWIDTH_BPS, RTT_S, LOSSES)
    return times.mean, times.quantile(0.999)


def selective_repeat(rng: np.random.Generator, samples: int, chunks: int, rto_s: float, loss: float) -> Array:
    """Draw completion times of `chunks` chunks (SDR-RDMA, section 4.2.2), in blocks that fit the cache."""
    slot_s = CHUNK_BYTES * 8 / BANDWIDTH_BPS
    latest = np.zeros(samples)
    width = max(DRAWS_AT_ONCE // samples, 1)
    for first in range(0, chunks, width):
        i = np.arange(first + 1, min(first + width, chunks) + 1)
        sent = rng.geometric(1 - loss, size=(samples, i.size))
        times = i * slot_s + (rto_s + slot_s) * (sent - 1)
        np.maximum(latest, times.max(axis=1), out=latest)
    return latest + RTT_S


def erasure_coding(rng: np.random.Generator, samples: int, chunks: int, loss: float, failure: float) -> Array:
    """Draw completion times with 8 parity chunks for 32 data chunks (SDR-RDMA, section 4.2.3)."""
    slot_s = CHUNK_BYTES * 8 / BANDWIDTH_BPS
    failed = rng.binomial(-(-chunks // 32), failure, size=samples)
    times = np.full(samples, (chunks + -(-chunks // 4)) * slot_s + RTT_S)
    for sample in np.flatnonzero(failed):
        again = selective_repeat(rng, 1, 32 * int(failed[sample]), 3 * RTT_S, loss)
        times[sample] += 1.5 * RTT_S + again[0] - RTT_S
    return times


def sampled(samples: int) -> Iterator[tuple[str, float, float, Array]]:
    """Yield scheme, size, loss and samples of each point."""
    rng = np.random.default_rng(1)
    for scheme in SCHEMES:
        for size in SIZES_BYTES:
            for loss in LOSSES:
                chunks = int(size) // CHUNK_BYTES
                if scheme.startswith("ec"):
                    failure = float(model.group_failure(scheme, loss))
                    times = erasure_coding(rng, samples, chunks, loss, failure)
                else:
                    rto_s = RTT_S * (3 if scheme == "sr-rto" else 1)
                    times = selective_repeat(rng, samples, chunks, rto_s, loss)
                yield scheme, size, loss, times


def main() -> None:
    """Measure both evaluations, and print their ratio and the conditions."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--samples", type=int, default=10, help="measured samples of each point (10)")
    samples = arguments.parse_args().samples

    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    repeats = []
    for _ in range(5):
        begun = time.perf_counter()
        means, tails = exact()
        repeats.append(time.perf_counter() - begun)
    exact_s = sorted(repeats)[len(repeats) // 2]

    begun = time.perf_counter()
    draws = {(scheme, size, loss): times for scheme, size, loss, times in sampled(samples)}
    sampler_s = (time.perf_counter() - begun) * PAPER_SAMPLES / samples

    pulls = []
    for (scheme, size, loss), times in draws.items():
        place = SCHEMES.index(scheme), SIZES_BYTES.tolist().index(size), LOSSES.tolist().index(loss)
        deviation = times.std() / np.sqrt(samples)
        if deviation > 1e-9:
            pulls.append((times.mean() - means[place]) / deviation)

    print(f"{platform.machine()}, {os.cpu_count()} CPUs of which one is used, NumPy {np.__version__}")
    print(f"map: {len(SCHEMES)} schemes, {SIZES_BYTES.size} sizes, {LOSSES.size} loss rates; mean and p99.9")
    print(f"exact:         {exact_s:8.3f} s (median of {len(repeats)}; {means.size + tails.size} numbers)")
    how = (
        "measured"
        if samples == PAPER_SAMPLES
        else f"{samples} measured, taken {PAPER_SAMPLES / samples:g} times"
    )
    print(f"NumPy sampler: {sampler_s:8.0f} s for {PAPER_SAMPLES} samples a point ({how})")
    print(f"ratio:         {sampler_s / exact_s:8.0f}")
    if samples >= 100:
        rms = np.sqrt(np.mean(np.square(pulls)))
        print(
            f"means: {rms:.2f} standard errors apart, root mean square over {len(pulls)} points with losses"
        )


if __name__ == "__main__":
    main()
