"""The Hadamard transform as a kernel in Triton.

A program of the kernel transforms a tile of whole blocks in registers. It reads each value once, and writes
each coefficient once. The addresses of the reads or of the writes contain the permutation.

The kernel computes the sums of the scalar kernel of ``farwrite-codes`` in the same order, so that both
kernels have the same results, bit for bit. Values are multiplied by the scale first. The compiler must not
fuse this product with the sums of the first level.
"""

# Triton declares other types for these functions than the calls in this module use.
# mypy: ignore-errors
# ruff: noqa: ANN001, ANN202

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

import torch
import triton
import triton.language as tl

from farwrite.torch.hadamard import Hadamard, Part

#: The most values of a block, and of a tile that is decoded: they take 64 KiB of registers. A tile that is
#: encoded has up to twice as many values.
TILE = 2**14
#: The most values of a warp. If fewer warps transform a tile, the warps exchange less data.
WARP = 2**11
#: The number of bytes in which a GPU moves memory.
SECTOR = 32


@triton.jit
def _transform(
    source,
    target,
    scale,
    blocks,
    tiles,
    BLOCK: tl.constexpr,
    LEVELS: tl.constexpr,
    RUN: tl.constexpr,
    ROWS: tl.constexpr,
    INVERSE: tl.constexpr,
    BY_HAND: tl.constexpr,
):
    """Transform one tile of `ROWS` blocks. A group has `blocks` blocks, in `tiles` tiles."""
    program = tl.program_id(0).to(tl.int64)
    group = program // tiles * blocks * BLOCK
    rows = program % tiles * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, BLOCK)
    # The tile has the order of the memory that is read, so that threads do not exchange the values that they
    # read.
    COLUMNS_FIRST: tl.constexpr = INVERSE and RUN < BLOCK
    if COLUMNS_FIRST:
        rows, columns = rows[None, :], columns[:, None]
    else:
        rows, columns = rows[:, None], columns[None, :]
    INNER: tl.constexpr = ROWS if COLUMNS_FIRST else 1
    there = (rows < blocks) & (columns < BLOCK)
    values = group + rows * BLOCK + columns
    coefficients = group + (columns // RUN * blocks + rows) * RUN + columns % RUN
    read = coefficients if INVERSE else values
    write = values if INVERSE else coefficients

    loaded = tl.load(source + read, mask=there, other=0.0)
    # In Triton's interpreter, bfloat16 is converted by integer operations: the interpreter rounds it toward
    # zero, and makes small values zero.
    if BY_HAND and source.dtype.element_ty == tl.bfloat16:
        loaded = (loaded.to(tl.uint16, bitcast=True).to(tl.uint32) << 16).to(tl.float32, bitcast=True)
    tile = loaded.to(tl.float32) * scale
    for level in tl.static_range(LEVELS):
        # The pairs of values whose indices in the block differ only in the bit `level`.
        pairs = tl.reshape(tile, (ROWS * BLOCK // ((2 << level) * INNER), 2, (1 << level) * INNER))
        low, high = tl.split(tl.permute(pairs, (0, 2, 1)))
        tile = tl.permute(tl.join(low + high, low - high), (0, 2, 1))
    tile = tl.reshape(tile, (BLOCK, ROWS) if COLUMNS_FIRST else (ROWS, BLOCK))
    if BY_HAND and target.dtype.element_ty == tl.bfloat16:
        bits = tile.to(tl.uint32, bitcast=True)
        bits = tl.where(tile == tile, (bits + 0x7FFF + (bits >> 16 & 1)) >> 16, 0x7FC0)
        result = bits.to(tl.uint16).to(tl.bfloat16, bitcast=True)
    else:
        result = tile.to(target.dtype.element_ty)
    tl.store(target + write, result, mask=there)


def transform(
    hadamard: Hadamard, tensor: torch.Tensor, segment_ends: Sequence[int], *, inverse: bool
) -> torch.Tensor:
    """Transform a contiguous tensor of a GPU, or of the host if Triton's interpreter runs the kernel.

    Raises
    ------
    ValueError
        If a block has more values than a tile.
    """
    if hadamard.block > TILE:
        raise ValueError(f"block = {hadamard.block}: must be at most {TILE} for a tensor of a GPU")
    source = tensor.reshape(-1)
    target = torch.empty_like(source)
    # Triton uses the current device, which can differ from the device of the tensor. The interpreter uses no
    # device.
    with torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext():
        for part in hadamard.parts(segment_ends):
            _launch(source[part.start :], target[part.start :], part, inverse=inverse)
    return target.view(tensor.shape)


def _launch(source: torch.Tensor, target: torch.Tensor, part: Part, *, inverse: bool) -> None:
    levels = part.block.bit_length() - 1
    is_permuted = part.run < part.block
    # A tile has as many blocks as fill a sector with a run of each block. If blocks are small, it has as many
    # blocks as were fastest on an H200.
    busy = 4 * WARP if is_permuted else WARP // 2
    wanted = max(SECTOR // (part.run * source.element_size()), busy // part.block, 1)
    most = TILE if inverse else 2 * TILE
    rows = min(wanted, triton.next_power_of_2(part.blocks), most // part.block)
    tiles = triton.cdiv(part.blocks, rows)
    _transform[(part.groups * tiles,)](
        source,
        target,
        _scale(levels),
        part.blocks,
        tiles,
        BLOCK=part.block,
        LEVELS=levels,
        RUN=part.run,
        ROWS=rows,
        INVERSE=inverse,
        BY_HAND=triton.knobs.runtime.interpret,
        num_warps=max(rows * part.block // WARP, 1),
        enable_fp_fusion=False,
    )


def _scale(levels: int) -> float:
    """Return `1 / sqrt(2**levels)` as a value of float32."""
    half = torch.tensor(0.5**0.5, dtype=torch.float32).item() if levels % 2 else 1.0
    return 2.0 ** -(levels // 2) * half
