//! What the hosts of a path offer to its links, where the adaptive rate must follow what the path delivers.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

use farwrite::RateControl;
use farwrite::fabric::sim::Datagram;

use crate::plan::Plan;

/// A flow may offer more than twice what its link carries for this time and these round trips, as long as it
/// does not know the link.
const TIME: Duration = Duration::from_millis(50);
const ROUND_TRIPS: u32 = 10;

/// What was offered to one link of a known rate.
#[derive(Debug)]
pub(super) struct Offered {
    /// The addresses of its ends, as the network sees them.
    ends: [IpAddr; 2],
    window_ns: u64,
    /// Twice what the link carries in the window, and one burst, which the user has set.
    most_bytes: u64,
    /// The packets of the window that ends now.
    packets: VecDeque<(u64, u64)>,
    bytes: u64,
}

/// All links of a known rate whose flows have an adaptive rate.
pub(super) fn links(plan: &Plan, addresses: &[[IpAddr; 2]]) -> Vec<Offered> {
    let mut all = Vec::new();
    for (index, path) in plan.paths.iter().enumerate() {
        if !matches!(path.rate_control, RateControl::Adaptive { .. }) {
            continue;
        }
        let rtt = path.links[0].delay + path.links[1].delay;
        let window_ns = u64::try_from((TIME + rtt * ROUND_TRIPS).as_nanos()).expect("short");
        let pairs = plan.pairs.iter().filter(|pair| pair.path == index);
        let bursts = pairs.map(|pair| pair.options.burst_bytes);
        let burst_bytes = bursts.max().unwrap_or(0);
        for (link, config) in path.links.iter().enumerate() {
            let Some(rate_bps) = config.rate_bps else {
                continue;
            };
            let [from, to] = [link, 1 - link].map(|end| addresses[path.hosts[end]][1]);
            let carried = u128::from(rate_bps) * u128::from(window_ns) / 8_000_000_000;
            all.push(Offered {
                ends: [from, to],
                window_ns,
                most_bytes: 2 * u64::try_from(carried).expect("few bytes") + burst_bytes,
                packets: VecDeque::new(),
                bytes: 0,
            });
        }
    }
    all
}

impl Offered {
    /// Counts a packet, if it enters this link. Returns what is wrong, if too much was offered.
    pub(super) fn count(&mut self, now_ns: u64, datagram: &Datagram) -> Option<String> {
        if [datagram.src.ip(), datagram.dst.ip()] != self.ends {
            return None;
        }
        let bytes = datagram.ip_bytes();
        self.packets.push_back((now_ns, bytes));
        self.bytes += bytes;
        let begins_ns = now_ns.saturating_sub(self.window_ns);
        while let Some(&(at_ns, bytes)) = self.packets.front()
            && at_ns < begins_ns
        {
            self.packets.pop_front();
            self.bytes -= bytes;
        }
        (self.bytes > self.most_bytes).then(|| {
            let Self {
                ends: [from, to],
                window_ns,
                most_bytes,
                bytes,
                ..
            } = self;
            format!(
                "from {from} to {to}, {bytes} bytes were offered in {} ms, {most_bytes} at most",
                *window_ns / 1_000_000
            )
        })
    }
}
