"""Measures the Hadamard transform on a GPU: its speed as a share of the speed of a copy on the device.

It needs a GPU of CUDA and Triton. Each time is the median of several calls, in turns with the copy.
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
#: Cycles of a device, about a quarter of a millisecond.
QUEUEING = 500_000


def milliseconds(work: Callable[[], object]) -> float:
    """Return how long the device is busy with one call."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    # The device waits until the program has queued the work, so the time that this takes does not count.
    torch.cuda._sleep(QUEUEING)
    begin.record()
    work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


def main() -> int:
    """Print a table; return 1 without a GPU."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=128, help="size of the tensor")
    parser.add_argument("--calls", type=int, default=50, help="measured calls of each kind")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("no GPU: torch.cuda.is_available() is False", file=sys.stderr)
        return 1
    print(f"{torch.cuda.get_device_name()}, {arguments.mib} MiB, medians of {arguments.calls} calls")
    print("     type  block stride  copy GB/s  encode / copy  decode / copy")
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        # A packet of 4096 bytes.
        packet = 4096 // dtype.itemsize
        source = torch.randn((arguments.mib << 20) // dtype.itemsize, device="cuda").to(dtype)
        target = torch.empty_like(source)
        for block in (256, 1024, 4096):
            for stride in (1, packet):
                hadamard = Hadamard(block, packet, stride)
                works = [partial(target.copy_, source), partial(hadamard.encode, source)]
                works.append(partial(hadamard.decode, source))
                # The first calls compile, and fill caches of the allocator.
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
