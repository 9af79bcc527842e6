"""The transform of tensors: the kernel for GPUs, in Triton's interpreter, compared with that of the host."""

import os
import random
import re

import pytest
import torch

# The variable must be set before Triton is imported. Kernels then run on the host, with NumPy.
os.environ["TRITON_INTERPRET"] = "1"
if os.environ.get("CI") == "true":
    import triton
else:
    triton = pytest.importorskip("triton")

from farwrite.torch import Hadamard, hadamard_kernel

TYPES = [torch.float32, torch.float16, torch.bfloat16]


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and torch.equal(one.view(torch.uint8), other.view(torch.uint8))


def draw(seed: int) -> tuple[Hadamard, torch.Tensor, list[int]]:
    """Draw a transform, values, and the ends of segments, with whole and incomplete groups."""
    rng = random.Random(seed)
    block, packet = 1 << rng.randrange(0, 9), 1 << rng.randrange(0, 7)
    stride = 1 << rng.randrange(0, packet.bit_length())
    size = rng.randrange(0, 3 * block * stride + 2 * block)
    ends = sorted(rng.randrange(0, size + 1) for _ in range(rng.randrange(0, 3)))
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(size, generator=generator) * 10 ** rng.uniform(-3, 3)
    return Hadamard(block, packet, stride), values, [*ends, size]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("seed", range(16))
def test_the_kernel_returns_the_bits_of_the_host(seed: int, dtype: torch.dtype) -> None:
    hadamard, values, ends = draw(seed)
    values = values.to(dtype)
    encoded = hadamard.encode(values, ends)
    assert same_bits(hadamard_kernel.transform(hadamard, values, ends, inverse=False), encoded)
    decoded = hadamard.decode(encoded, ends)
    assert same_bits(hadamard_kernel.transform(hadamard, encoded, ends, inverse=True), decoded)
    largest = values.float().abs().max().item() if len(values) else 0.0
    torch.testing.assert_close(decoded, values, rtol=0, atol=largest * 20 * torch.finfo(dtype).eps)


@pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning")
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_values_that_round_at_the_edges_of_a_type(dtype: torch.dtype) -> None:
    finfo = torch.finfo(dtype)
    edges = [0.0, -0.0, finfo.max, -finfo.max, finfo.tiny, finfo.smallest_normal / 2, torch.inf, 1.0]
    values = torch.tensor(edges * 8).to(dtype)
    for block in (1, 2, 8):
        hadamard = Hadamard(block, 4, 2)
        on_host = hadamard.encode(values)
        by_kernel = hadamard_kernel.transform(hadamard, values, [64], inverse=False)
        numbers = ~on_host.isnan()
        assert torch.equal(on_host.isnan(), by_kernel.isnan())
        assert same_bits(on_host[numbers], by_kernel[numbers])


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("element", ["fp32", "fp16", "bf16"])
def test_compiled_sums_are_those_of_the_host(element: str, inverse: bool) -> None:
    """The interpreter does not compile. This test compiles the kernel for a GPU, which needs no GPU."""
    constants = {"BLOCK": 1024, "LEVELS": 10, "RUN": 1, "ROWS": 8, "INVERSE": inverse, "BY_HAND": False}
    signature = dict.fromkeys(["source", "target"], f"*{element}")
    signature |= {"scale": "fp32", "blocks": "i32", "tiles": "i32"}
    source = triton.compiler.ASTSource(
        triton.JITFunction(hadamard_kernel._transform.fn),
        signature | dict.fromkeys(constants, "constexpr"),
        constants,
    )
    target = triton.backends.compiler.GPUTarget("cuda", 90, 32)
    compiled = triton.compile(source, target=target, options={"num_warps": 4, "enable_fp_fusion": False})
    sums = set(re.findall(r"\b((?:add|sub|mul|fma)\.[a-z.]*f32)\b", compiled.asm["ptx"]))
    # Results are rounded to the nearest value, small values are kept, and no product is fused with a sum.
    assert sums <= {"add.rn.f32", "sub.rn.f32", "mul.rn.f32", "add.f32", "sub.f32", "mul.f32"}
    assert any(name.startswith("add") for name in sums)
    assert any(name.startswith("mul") for name in sums)
    # The interpreter converts bfloat16 by integer operations. A GPU has an instruction that rounds to
    # nearest.
    assert bool(re.search(r"cvt\.rn\.bf16(x2)?\.f32", compiled.asm["ptx"])) == (element == "bf16")


def test_a_lost_packet_is_a_small_error_of_many_values() -> None:
    hadamard = Hadamard(1024, 256)
    values = torch.randn(1 << 18, generator=torch.Generator().manual_seed(1))
    encoded = hadamard.encode(values)
    encoded[7 * 256 : 8 * 256] = 0
    error = (hadamard.decode(encoded * (1024 / 1023)) - values).abs()
    assert 0 < error.max() < 0.3


def test_what_cannot_be_transformed_is_refused() -> None:
    with pytest.raises(ValueError, match="block = 48: must be a power of two from 1 to 33554432"):
        Hadamard(48)
    with pytest.raises(ValueError, match="stride = 512: must be a power of two from 1 to 256"):
        Hadamard(1024, 256, 512)
    hadamard = Hadamard(8, 4)
    with pytest.raises(TypeError, match="tensor is of torch.float64: must be of float32"):
        hadamard.encode(torch.zeros(8, dtype=torch.float64))
    with pytest.raises(ValueError, match="tensor is not contiguous: shape"):
        hadamard.encode(torch.zeros(8, 2).t())
    with pytest.raises(ValueError, match="segment_ends = \\[5\\]: must be ascending and end with 8"):
        hadamard.decode(torch.zeros(8), [5])
    with pytest.raises(ValueError, match="block = 32768: must be at most 16384 for a tensor of a GPU"):
        hadamard_kernel.transform(Hadamard(1 << 15), torch.zeros(8), [8], inverse=False)
