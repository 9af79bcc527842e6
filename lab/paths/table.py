"""Tables on the terminal."""


def show(title, conditions, header, rows):
    """Prints a table. Cells are text or numbers."""
    lines = [header, *[[_cell(cell) for cell in row] for row in rows]]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    print(f"\n{title}\n{conditions}\n", flush=True)
    for line in lines:
        first, *rest = zip(line, widths)
        cells = [first[0].ljust(first[1]), *[cell.rjust(width) for cell, width in rest]]
        print("  " + "  ".join(cells).rstrip(), flush=True)


def _cell(value):
    if value is None:
        return "-"
    return value if isinstance(value, str) else f"{value:.3g}"
