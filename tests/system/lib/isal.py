"""Parity by ISA-L, the library that storage and network code uses (Debian's libisal2)."""

import ctypes

_LIBRARY = "libisal.so.2"


def parity(k, m, chunks):
    """Return the parity chunks of a group of `k` chunks of one length, with ISA-L's Cauchy matrix."""
    isal = ctypes.CDLL(_LIBRARY)
    length = len(chunks[0])
    matrix = ctypes.create_string_buffer((k + m) * k)
    isal.gf_gen_cauchy1_matrix(matrix, k + m, k)
    tables = ctypes.create_string_buffer(32 * k * m)
    isal.ec_init_tables(k, m, ctypes.byref(matrix, k * k), tables)
    buffers = [ctypes.create_string_buffer(chunk, length) for chunk in chunks]
    made = [ctypes.create_string_buffer(length) for _ in range(m)]
    isal.ec_encode_data(length, k, m, tables, _pointers(buffers), _pointers(made))
    return [buffer.raw for buffer in made]


def _pointers(buffers):
    return (ctypes.c_void_p * len(buffers))(*(ctypes.addressof(buffer) for buffer in buffers))
