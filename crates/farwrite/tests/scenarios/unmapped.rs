//! Memory that only devices reach.

use std::fs::File;

use farwrite::fabric::contract::{DmaBuf, FabricError, Region};
use farwrite::{Error, MemoryRegion, Outcome, SendOptions};
use farwrite_link::{LinkConfig, Loss};

use crate::slow_world::{SlowEnd, SlowWorld};
use crate::world::{SECOND, addr, long_haul, options, tag};

const BYTES: u64 = 1 << 20;
const CODED: &str = "ec-mds:32,8";

/// A region of another device's memory. The fabric of these tests does not look into the buffer.
fn unmapped(end: &mut SlowEnd) -> MemoryRegion {
    let fd = File::open("/dev/zero").expect("it exists").into();
    let region = Region::of_dma_buf(DmaBuf { fd, offset: 0 }, BYTES);
    end.endpoint.register_region(region).expect("room")
}

fn mapped(end: &mut SlowEnd) -> MemoryRegion {
    let memory = vec![7; usize::try_from(BYTES).expect("small")];
    end.endpoint.register(memory).expect("room")
}

fn with_scheme(scheme: &str) -> SendOptions {
    SendOptions {
        scheme: tag(scheme),
        ..SendOptions::default()
    }
}

/// Ends whose path loses packets in both directions.
fn lossy_world() -> SlowWorld {
    let world = SlowWorld::new(&[options()]);
    let lossy = LinkConfig {
        loss: Loss::Iid { loss_packet: 0.02 },
        ..long_haul()
    };
    for (from, to) in [(1, 2), (2, 1)] {
        let set = world
            .network
            .set_link(addr(from).ip(), addr(to).ip(), lossy, &[]);
        set.expect("a link");
    }
    world
}

#[test]
fn losses_are_repaired_by_repeats() {
    let mut world = lossy_world();
    let (source, target) = (unmapped(&mut world.a), unmapped(&mut world.b));
    for scheme in ["sr-nack", "sr-rto", "gbn"] {
        let (a, b) = (&mut world.a, &mut world.b);
        let recv = b.endpoint.post_recv(b.qps[0], target.whole());
        let recv = recv.expect("a free slot");
        let send = with_scheme(scheme);
        let send = a.endpoint.post_send(a.qps[0], source.whole(), send);
        let send = send.expect("a free slot");
        let over = |_: &mut SlowWorld| send.outcome().is_some() && recv.outcome().is_some();
        let limit_ns = world.now_ns() + 10 * SECOND;
        assert!(world.run_until(limit_ns, over), "{scheme}: not over");
        assert_eq!(recv.outcome(), Some(Outcome::Whole), "{scheme}");
    }
    assert!(world.a.stats(0).sender.retransmitted_chunks > 0);
    for (end, region) in [(&mut world.a, source), (&mut world.b, target)] {
        let read = end.endpoint.read_memory(region, 0, &mut [0]);
        assert!(matches!(read, Err(Error::Fabric(FabricError::NotMapped))));
        assert_eq!(
            end.endpoint.deregister(region).expect("free").length(),
            BYTES
        );
    }
}

#[test]
fn parity_is_not_computed_from_it() {
    let mut world = SlowWorld::new(&[options()]);
    let source = unmapped(&mut world.a);
    let (a, qp) = (&mut world.a.endpoint, world.a.qps[0]);
    let refused = a.post_send(qp, source.whole(), with_scheme(CODED));
    let error = refused.expect_err("it has no bytes").to_string();
    assert!(
        error.contains("copy the bytes to ordinary memory"),
        "{error}"
    );
    // The queue pair works.
    let send = a.post_send(qp, source.whole(), with_scheme("sr-nack"));
    assert!(send.is_ok());
}

#[test]
fn nothing_is_rebuilt_in_it() {
    let mut world = lossy_world();
    let (source, target) = (mapped(&mut world.a), unmapped(&mut world.b));
    let (a, b) = (&mut world.a, &mut world.b);
    let recv = b.endpoint.post_recv(b.qps[0], target.whole());
    let recv = recv.expect("a free slot");
    let send = a
        .endpoint
        .post_send(a.qps[0], source.whole(), with_scheme(CODED));
    let send = send.expect("a free slot");
    let over = |_: &mut SlowWorld| send.outcome().is_some() && recv.outcome().is_some();
    assert!(world.run_until(10 * SECOND, over), "not over");
    assert_eq!(recv.outcome(), Some(Outcome::Whole));
    assert_eq!(world.b.stats(0).rebuilt_chunks, 0);
    assert!(world.a.stats(0).sender.retransmitted_chunks > 0);
}
