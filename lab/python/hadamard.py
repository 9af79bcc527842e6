"""Measures the speed of the Hadamard transform on a GPU, as a share of the speed of a copy on the GPU.

This program needs CUDA, a GPU, and Triton. The transform and the copy take turns. Each time is the median of
several calls.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from statistics import median

import torch
from farwrite.torch import Hadamard

WARM_UP = 5
#: Number of cycles of a GPU: about a quarter of a millisecond.
QUEUEING = 500_000


def milliseconds(work: Callable[[], object]) -> float:
    """Return how many milliseconds the GPU is busy with one call."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    # The GPU waits until the program has queued the work, so the time of queueing does not count.
    torch.cuda._sleep(QUEUEING)
    begin.record()
    work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


def main() -> int:
    """Measure, and print a table. Return 1 if there is no GPU."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=128, help="size of the tensor in MiB")
    parser.add_argument("--calls", type=int, default=50, help="number of measured calls of each kind")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("no GPU: torch.cuda.is_available() is False", file=sys.stderr)
        return 1
    print(f"{torch.cuda.get_device_name()}, {arguments.mib} MiB, medians of {arguments.calls} calls")
    print("     type  block stride  copy GB/s  encode / copy  decode / copy")
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        # A packet has 4096 bytes.
        packet = 4096 // dtype.itemsize
        source = torch.randn((arguments.mib << 20) // dtype.itemsize, device="cuda").to(dtype)
        target = torch.empty_like(source)
        for block in (256, 1024, 4096):
            for stride in (1, packet):
                hadamard = Hadamard(block, packet, stride)
                works = [partial(target.copy_, source), partial(hadamard.encode, source)]
                works.append(partial(hadamard.decode, source))
                # The first calls do not count: they compile the kernel, and fill the cache of the allocator.
                calls = [list(map(milliseconds, works)) for _ in range(WARM_UP + arguments.calls)]
                copy, encode, decode = map(median, zip(*calls[WARM_UP:], strict=True))
                speed = 2 * source.nbytes / copy / 1e6
                print(
                    f"{str(dtype).removeprefix('torch.'):>9} {block:>6} {stride:>6}  {speed:>9.0f}  "
                    f"{copy / encode:>13.2f}  {copy / decode:>13.2f}"
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
