"""The tables of RDMA devices of the kernel."""

from results import table


def shares(rows, figure, panel, whole):
    """Shares of the rate of the series `whole` without losses, of the own rate, and of `whole` with the same loss."""
    lines = []
    for loss in rows.places(figure, panel, whole, "share"):
        plain = rows.value(figure, panel, whole, loss, "share")
        for name in rows.series(figure, panel, loss):
            share, least = (rows.value(figure, panel, name, loss, of) for of in ("share", "least"))
            text = f"{loss:.1%}".replace(".0%", "%") if name == whole else ""
            kept = share / rows.value(figure, panel, name, 0, "share")
            lines.append([text, name, f"{share:.2f}", f"{least:.2f}", f"{kept:.2f}", f"{share / plain:.1f}"])
    return table(["loss", "", "share", "lowest run", "of its own", f"over {whole}"], lines)


TABLES = {
    "vm-boxes": lambda rows: shares(rows, "LV", "IPv4", "no box"),
    "vm-perftest": lambda rows: shares(rows, "SV", "20 ms", "ib_write_bw, RC"),
}
