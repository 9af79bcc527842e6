//! Drop counters of this host's kernel.

use std::fs;

use crate::message::HostDrops;

impl HostDrops {
    /// Drops since the start of the host, over all programs (proc(5), `net/snmp` and `net/snmp6`).
    pub(crate) fn in_all() -> Self {
        let v4 = fs::read_to_string("/proc/net/snmp").unwrap_or_default();
        let v6 = fs::read_to_string("/proc/net/snmp6").unwrap_or_default();
        let count = |name| {
            let counts = [of_table(&v4, name), of_list(&v6, &format!("Udp6{name}"))];
            counts
                .into_iter()
                .flatten()
                .reduce(|one, other| one + other)
        };
        Self {
            recv_buffer: count("RcvbufErrors"),
            send_buffer: count("SndbufErrors"),
        }
    }

    /// Drops since `before`.
    pub(crate) fn since(before: Self) -> Self {
        let now = Self::in_all();
        let since = |now: Option<u64>, before: Option<u64>| Some(now?.saturating_sub(before?));
        Self {
            recv_buffer: since(now.recv_buffer, before.recv_buffer),
            send_buffer: since(now.send_buffer, before.send_buffer),
        }
    }
}

/// A column of the two lines that begin with `Udp:`: the first line has the names, the second the
/// values.
fn of_table(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let mut columns = names.split_whitespace().zip(values.split_whitespace());
    columns.find(|column| column.0 == name)?.1.parse().ok()
}

/// The value of the line that begins with `name`.
fn of_list(text: &str, name: &str) -> Option<u64> {
    let mut words = text.lines().map(str::split_whitespace);
    let mut line = words.find(|words| words.clone().next() == Some(name))?;
    line.nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_their_names() {
        let snmp = "Udp: InDatagrams NoPorts RcvbufErrors\nUdp: 10 2 7\nUdpLite: RcvbufErrors\nUdpLite: 9\n";
        assert_eq!(of_table(snmp, "RcvbufErrors"), Some(7));
        assert_eq!(of_table(snmp, "SndbufErrors"), None);
        let snmp6 = "Udp6InErrors   \t1\nUdp6RcvbufErrors        5\n";
        assert_eq!(of_list(snmp6, "Udp6RcvbufErrors"), Some(5));
        assert_eq!(of_list(snmp6, "Udp6"), None);
    }

    #[test]
    fn this_host_counts() {
        assert!(HostDrops::since(HostDrops::in_all()).recv_buffer.is_some());
    }
}
