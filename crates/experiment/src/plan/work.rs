//! Estimates of the time that a plan takes.

use farwrite_units::show::real;

use super::CaseParts;
use crate::Flow;
use crate::ideal::{Ideal, PacketFormat};
use crate::transport::Transport;

/// Packet-hops of data that a run simulates per second of processor time, by the measurements of
/// lab/results/sim.md: NICs about 2 to 5 million, endpoints 0.3 to 1.2 million.
const NIC_HOPS_PER_S: u64 = 2_000_000;
const ENDPOINT_HOPS_PER_S: u64 = 400_000;

/// Processor time from which a note warns of the length of a plan.
const LONG_S: u64 = 3_600;

/// Number of flows whose paths are measured.
const SAMPLE: usize = 32;

/// What runs have to simulate: a data packet that crosses a cable is one packet-hop. Acknowledgements
/// and retransmissions do not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Work {
    hops: u64,
    seconds: u64,
}

impl Work {
    /// The work of `runs` runs of the same size.
    pub(super) fn times(self, runs: u64) -> Self {
        Self {
            hops: self.hops.saturating_mul(runs),
            seconds: self.seconds.saturating_mul(runs),
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.hops = self.hops.saturating_add(other.hops);
        self.seconds = self.seconds.saturating_add(other.seconds);
    }

    /// A note if the plan takes very long.
    pub(super) fn note(self, runs: usize) -> Option<String> {
        let (amount, unit) = match self.seconds {
            0..LONG_S => return None,
            LONG_S..172_800 => (self.seconds / 3_600, "hours"),
            _ => (self.seconds / 86_400, "days"),
        };
        let (hops, s) = (real(self.hops), if runs == 1 { "" } else { "s" });
        Some(format!(
            "the plan has about {hops:.1e} packet-hops of data in {runs} run{s}, which take about \
             {amount} {unit} of processor time; a smaller size, fewer flows or seeds, a larger mtu, or \
             an earlier until make it shorter"
        ))
    }
}

impl CaseParts {
    /// Estimates the work of a run.
    pub(super) fn work(&self) -> Work {
        let hops = self.data_packets().saturating_mul(self.path_cables());
        let hops_per_s = match self.transport {
            Transport::Endpoint(_) => ENDPOINT_HOPS_PER_S,
            Transport::Nic(_) | Transport::Xp(_) => NIC_HOPS_PER_S,
        };
        Work {
            hops,
            seconds: hops / hops_per_s,
        }
    }

    /// Packets of all flows, at most those that the cables of the senders carry until the run ends.
    fn data_packets(&self) -> u64 {
        let mtu = u64::from(self.transport.mtu());
        let rates_bps = super::host_rates(&self.topology);
        let mut of_hosts = vec![0_u64; rates_bps.len()];
        for flow in &self.workload.flows {
            let packets = &mut of_hosts[flow.src];
            *packets = packets.saturating_add(flow.bytes.div_ceil(mtu));
        }
        let carried = |rate_bps: u64| match self.until_ns {
            Some(until_ns) => {
                let bits = u128::from(rate_bps) * u128::from(until_ns) / 1_000_000_000;
                u64::try_from(bits / 8 / u128::from(mtu)).unwrap_or(u64::MAX)
            }
            None => u64::MAX,
        };
        let packets = of_hosts.into_iter().zip(rates_bps);
        let packets = packets.map(|(packets, rate_bps)| packets.min(carried(rate_bps)));
        packets.fold(0, u64::saturating_add)
    }

    /// Mean number of cables of a flow's path, rounded up, from a sample of the flows.
    fn path_cables(&self) -> u64 {
        let wire = PacketFormat {
            mtu: self.transport.mtu(),
            framing: self.options.framing_bytes,
        };
        let mut ideal = Ideal::new(&self.topology, &self.options, wire);
        let flows = &self.workload.flows;
        let every = flows.len().div_ceil(SAMPLE).max(1);
        let sample = flows.iter().step_by(every);
        let cables = |flow: &Flow| ideal.cables(flow.src, flow.dst).unwrap_or(0);
        let cables: Vec<u64> = sample.map(cables).collect();
        cables
            .iter()
            .sum::<u64>()
            .div_ceil(cables.len().max(1) as u64)
    }
}
