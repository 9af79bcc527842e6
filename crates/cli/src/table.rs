//! Tables for people.

/// Aligns cells in columns: the first `left` columns to the left, the others to the right.
pub(crate) fn lay_out<const COLUMNS: usize>(rows: &[[String; COLUMNS]], left: usize) -> String {
    let width = |column: usize| {
        let widths = rows.iter().map(|row| row[column].chars().count());
        widths.max().unwrap_or(0)
    };
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
            line += &match column < left {
                true => format!("  {cell:<width$}"),
                false => format!("  {cell:>width$}"),
            };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text
}

/// A cell of CSV with text.
pub(crate) fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}

/// A cell, which is empty without a value.
pub(crate) fn cell(value: Option<impl ToString>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

/// A cell with a number that has these decimals, which is empty without one.
pub(crate) fn decimals(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(String::new, |value| format!("{value:.digits$}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [["name", "", "n"], ["a", "bc", "1024"]].map(|row| row.map(str::to_owned));
        assert_eq!(lay_out(&rows, 2), "  name         n\n  a     bc  1024");
    }
}
