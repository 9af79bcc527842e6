"""The tables of NetRT."""

from results import table


def change(value, of):
    """A time, and its difference from another one."""
    percent = round((value / of - 1) * 100)
    return f"{value:,.0f} ({percent:+d}%)" if percent else f"{value:,.0f} (0%)"


def n8_window(rows):
    """The incast of N8, of senders with a window. Changes are those from Go-Back-N with a window."""
    lines = []
    for kib, buffer in ((512, "512 KiB"), (1024, "1 MiB"), (2048, "2 MiB"), (9216, "9 MiB")):
        for senders in (15, 30, 50):
            def value(series, measure, kib=kib, senders=senders):
                return rows.value("N8-window", f"{kib} KiB", series, senders, measure)

            plain, tail = value("Go-Back-N", "mean_us"), value("Go-Back-N", "p99_us")
            lines.append([
                str(senders), buffer,
                *(f"{value(f'no window, {name}', 'mean_us'):,.0f}" for name in ("Go-Back-N", "NetRT")),
                f"{plain:,.0f}",
                *(change(value(name, "mean_us"), plain) for name in ("IRN", "NetRT")),
                f"{tail:,.0f}", change(value("NetRT", "p99_us"), tail),
                f"{value('Go-Back-N', 'dropped'):,.0f}",
                *(f"{value(name, 'repeated'):,.0f}" for name in ("Go-Back-N", "NetRT")),
            ])
    return table(["senders", "buffer", "no window: Go-Back-N", "NetRT", "window: Go-Back-N", "IRN", "NetRT",
                  "p99: Go-Back-N", "NetRT", "dropped: Go-Back-N", "repeated by NICs: Go-Back-N", "NetRT"], lines)


TABLES = {"n8-window": n8_window}
