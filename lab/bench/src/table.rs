//! Results as tables of plain text.

/// Prints a title, and a table whose first column is aligned to the left and whose others are
/// aligned to the right.
pub(crate) fn print<const N: usize>(title: &str, header: [&str; N], rows: &[[String; N]]) {
    println!("\n{title}");
    print!("{}", lines(header, rows));
}

fn lines<const N: usize>(header: [&str; N], rows: &[[String; N]]) -> String {
    let header = header.map(str::to_owned);
    let all = || std::iter::once(&header).chain(rows);
    let widths: [usize; N] = std::array::from_fn(|column| {
        let cells = all().map(|row| row[column].chars().count());
        cells.max().unwrap_or(0)
    });
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(widths).enumerate();
        let cells = cells.map(|(column, (cell, width))| match column {
            0 => format!("  {cell:<width$}"),
            _ => format!("  {cell:>width$}"),
        });
        cells.collect::<String>() + "\n"
    };
    all().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["raw", "36.0"], ["stack", "9.5"]].map(|row| row.map(str::to_owned));
        let text = lines(["what", "Gbit/s"], &rows);
        assert_eq!(text, "  what   Gbit/s\n  raw      36.0\n  stack     9.5\n");
    }
}
