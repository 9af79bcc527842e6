#!/usr/bin/env python3
"""Runs NCCL with the plugin on a machine with one GPU, by hand: crates/nccl/tests/gpu.py [LIBRARY]

Needs PyTorch with CUDA. Two ranks share the GPU. NCCL takes them for two hosts, so that it uses the plugin between
them. If NCCL refuses two ranks on one GPU, one rank loads the plugin. The log of NCCL is printed.
"""

import os
import socket
import subprocess
import sys
import time

RANK = "FARWRITE_GPU_RANK"
PORT = "FARWRITE_GPU_PORT"
MEBIBYTE = 1 << 20


def rank_of(rank, ranks):
    """What one rank does."""
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(0)
    dist.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{os.environ[PORT]}", rank=rank, world_size=ranks)
    for mebibytes in (1, 16, 256):
        values = torch.full((mebibytes * MEBIBYTE // 4,), float(rank + 1), device="cuda")
        start = time.monotonic()
        dist.all_reduce(values)
        torch.cuda.synchronize()
        seconds = time.monotonic() - start
        expected = ranks * (ranks + 1) / 2
        assert torch.all(values == expected), f"{mebibytes} MiB: not {expected}"
        if rank == 0:
            print(f"all-reduce of {mebibytes} MiB: right, {seconds:.3f} s", flush=True)
    dist.destroy_process_group()


def run(library, ranks):
    """Starts the ranks. Returns whether all have succeeded."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = []
    for rank in range(ranks):
        environment = os.environ | {
            RANK: f"{rank}/{ranks}",
            PORT: str(port),
            "NCCL_NET_PLUGIN": library,
            "NCCL_NET": "Farwrite",
            "NCCL_HOSTID": f"host-{rank}",
            "NCCL_P2P_DISABLE": "1",
            "NCCL_SHM_DISABLE": "1",
            "NCCL_SOCKET_IFNAME": "lo",
            "NCCL_DEBUG": "INFO",
            "NCCL_DEBUG_SUBSYS": "INIT,NET",
        }
        environment.setdefault("FARWRITE_NCCL_UNAUTHENTICATED", "1")
        processes.append(subprocess.Popen([sys.executable, __file__, library], env=environment))
    try:
        return all([process.wait(timeout=120) == 0 for process in processes])
    except subprocess.TimeoutExpired:
        print(f"{ranks} ranks have not ended within 120 s")
        return False
    finally:
        for process in processes:
            process.kill()


def main():
    library = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "target/release/libnccl_net_farwrite.so")
    if RANK in os.environ:
        rank_of(*map(int, os.environ[RANK].split("/")))
    elif run(library, 2):
        print("two ranks: pass")
    elif run(library, 1):
        print("two ranks: FAILED; one rank has loaded the plugin: see the log")
    else:
        sys.exit("FAILED")


if __name__ == "__main__":
    main()
