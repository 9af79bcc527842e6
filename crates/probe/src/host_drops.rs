//! Drop counters of this host's kernel.

use std::fs;

use crate::message::HostDrops;

/// Counts since the start of the host, over all programs (proc(5), `net/snmp` and `net/snmp6`).
fn total() -> HostDrops {
    let v4 = fs::read_to_string("/proc/net/snmp").unwrap_or_default();
    let v6 = fs::read_to_string("/proc/net/snmp6").unwrap_or_default();
    let count = |name| sum(of_table(&v4, name), of_list(&v6, &format!("Udp6{name}")));
    HostDrops {
        recv_buffer: count("RcvbufErrors"),
        send_buffer: count("SndbufErrors"),
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

fn sum(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (None, None) => None,
        (one, other) => Some(one.unwrap_or(0) + other.unwrap_or(0)),
    }
}

/// Counts drops from a given time on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostCounter {
    before: HostDrops,
}

impl HostCounter {
    pub(crate) fn start() -> Self {
        Self { before: total() }
    }

    /// Drops since this counter was created.
    pub(crate) fn drops(&self) -> HostDrops {
        let now = total();
        let since = |now: Option<u64>, before: Option<u64>| Some(now?.saturating_sub(before?));
        HostDrops {
            recv_buffer: since(now.recv_buffer, self.before.recv_buffer),
            send_buffer: since(now.send_buffer, self.before.send_buffer),
        }
    }
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
        assert_eq!(sum(Some(7), None), Some(7));
        assert_eq!(sum(None, None), None);
    }

    #[test]
    fn this_host_counts() {
        assert!(HostCounter::start().drops().recv_buffer.is_some());
    }
}
