//! What the system says in /proc.

use std::fs;

/// The first value with this name in a file of proc(5); `None` if the system does not report it.
pub(crate) fn proc_value(file: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let values = text.lines().filter_map(|line| line.split_once(':'));
    let mut named = values.filter(|(of_line, _)| of_line.trim_end() == name);
    named.next().map(|(_, value)| value.trim().to_owned())
}
