"""Jobs that `torchrun` starts again after a rank has failed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from ranks import free_port

#: In the first attempt, the last rank ends as soon as the group works, and the other rank waits for it.
SCRIPT = """
import os, pathlib, sys
import torch, torch.distributed as dist
import farwrite.torch
marker = pathlib.Path(sys.argv[1])
is_first = not marker.exists()
dist.init_process_group("farwrite", pg_options=farwrite.torch.Options(trusted_store=True))
values = torch.ones(1000)
dist.all_reduce(values)
if is_first and dist.get_rank() == 1:
    marker.touch()
    os._exit(1)
dist.barrier()
# There is one write, so that the lines of two ranks do not mix.
os.write(1, f"rank {dist.get_rank()} {values[0].item()}\\n".encode())
dist.destroy_process_group()
"""


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_job_that_is_started_again(nodes: int, tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(SCRIPT)
    port = free_port()
    words = [sys.executable, "-P", "-m", "torch.distributed.run", "--max-restarts", "3"]
    words += ["--nnodes", str(nodes), "--nproc-per-node", str(2 // nodes), "--local-addr", "127.0.0.1"]
    words += ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", str(script)]
    words += [str(tmp_path / "failed")]
    agents = [
        subprocess.Popen(
            words, env=dict(os.environ, OMP_NUM_THREADS="1"), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for _ in range(nodes)
    ]  # fmt: skip
    try:
        said = [agent.communicate(timeout=240) for agent in agents]
    finally:
        for agent in agents:
            agent.kill()
    assert [agent.returncode for agent in agents] == [0] * nodes, said
    lines = "".join(out for out, _ in said)
    for rank in range(2):
        assert f"rank {rank} 2.0" in lines, said
