//! Whole transfers over the virtual-time fabric, as the scenario tests run them by the thousand.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use farwrite::fabric::sim::{LinkConfig, SimFabric, SimNetwork};
use farwrite::{Endpoint, QpInfo, QpOptions, QueuePair, Region, SendOptions};
use farwrite_link::Loss;

use crate::Failure;
use crate::meter::{Meter, Usage};
use crate::table::{self, median};

/// Transfers of a run.
const TRANSFERS: u32 = 1000;

/// Bytes of one transfer.
const BYTES: usize = 256 * 1024;
/// Of each direction.
const LOSS_PACKET: f64 = 0.01;
/// There and back.
const RTT: Duration = Duration::from_millis(25);
const RATE_BPS: u64 = 10_000_000_000;

/// Runs transfers and prints how many a second.
pub(crate) fn run(runs: usize) -> Result<(), Failure> {
    let usages: Vec<_> = (0..runs).map(|_| transfers()).collect::<Result<_, _>>()?;
    let of = |what: &dyn Fn(&Usage) -> f64| format!("{:.0}", median(usages.iter().map(what)));
    let rows = [[
        "256 KiB at 1 % loss".to_owned(),
        of(&|usage| f64::from(TRANSFERS) / usage.wall.as_secs_f64()),
        of(&|usage| f64::from(TRANSFERS) / usage.cpu.as_secs_f64()),
    ]];
    let title = format!(
        "transfers: simulated, each with a network, two endpoints and queue pairs of its own; \
         medians of\n{runs} runs of {TRANSFERS}"
    );
    table::print(&title, ["", "per second", "per core-second"], &rows);
    Ok(())
}

/// Runs transfers one after another, each with a seed and a world of its own. All of it is
/// measured: making network, endpoints and queue pairs, connecting, registering, the transfer until
/// its sender knows that it is whole, comparing the bytes, and taking it all down. The two buffers
/// are used again.
fn transfers() -> Result<Usage, Failure> {
    let bytes: Vec<u8> = (0..=u8::MAX).cycle().take(BYTES).collect();
    let mut source = Region::owned(bytes.clone());
    let mut target = Region::owned(vec![0_u8; BYTES]);
    let meter = Meter::start();
    for seed in 0..TRANSFERS {
        target.fill(0);
        (source, target) = World::new(seed.into())?.transfer(source, target)?;
        if *target != bytes[..] {
            return Err(format!("transfer {seed} arrived damaged").into());
        }
    }
    Ok(meter.stop())
}

struct World {
    network: SimNetwork,
    ends: [(Endpoint<SimFabric>, QueuePair); 2],
}

impl World {
    fn new(seed: u64) -> Result<Self, Failure> {
        let network = SimNetwork::new(seed);
        let addrs = [1, 2].map(|host| SocketAddr::from((Ipv4Addr::new(10, 0, 0, host), 5000)));
        let link = LinkConfig {
            delay: RTT / 2,
            rate_bps: Some(RATE_BPS),
            loss: Loss::Iid {
                loss_packet: LOSS_PACKET,
            },
            ..LinkConfig::default()
        };
        network.connect(addrs[0].ip(), addrs[1].ip(), link, link)?;
        let mut ends = [end(&network, addrs[0])?, end(&network, addrs[1])?];
        let infos = [info(&ends[0])?, info(&ends[1])?];
        for ((endpoint, qp), peer) in ends.iter_mut().zip(infos.iter().rev()) {
            endpoint.connect_qp(*qp, peer)?;
        }
        Ok(Self { network, ends })
    }

    /// Sends one buffer into the other, and gives both back.
    fn transfer(mut self, source: Region, target: Region) -> Result<(Region, Region), Failure> {
        let [(a, qa), (b, qb)] = &mut self.ends;
        let target = b.register_region(target)?;
        b.post_recv(*qb, target.whole())?;
        let source = a.register_region(source)?;
        let send = a.post_send(*qa, source.whole(), SendOptions::default())?;
        while send.outcome().is_none() {
            let now_ns = self.network.now_ns();
            let wanted = [a.poll(now_ns)?, b.poll(now_ns)?, self.network.next_ns()];
            let next_ns = wanted.into_iter().flatten().min().ok_or("a dead world")?;
            self.network.advance_to(next_ns.max(now_ns + 1));
        }
        Ok((a.deregister(source)?, b.deregister(target)?))
    }
}

fn end(
    network: &SimNetwork,
    addr: SocketAddr,
) -> Result<(Endpoint<SimFabric>, QueuePair), Failure> {
    let mut endpoint = Endpoint::new(network.endpoint(addr, 1)?, [7; 32]);
    let qp = endpoint.create_qp(QpOptions {
        rate_bps: RATE_BPS / 10 * 9,
        initial_rtt: RTT,
        ..QpOptions::default()
    })?;
    Ok((endpoint, qp))
}

fn info((endpoint, qp): &(Endpoint<SimFabric>, QueuePair)) -> Result<QpInfo, Failure> {
    Ok(endpoint.qp_info(*qp)?)
}
