//! Reads for scenarios, and the checks of their results.

use farwrite::{ExposedRegion, MemoryRegion, MrSlice, ReadOptions, RecvHandle};
use farwrite_rng::SplitMix;
use farwrite_wire::control::Control;

use crate::deadlines::{FAILED, WHOLE};
use crate::parcel::UNTOUCHED;
use crate::traffic::Seen;
use crate::world::{SECOND, World, tag};

pub(crate) const ALL: [&str; 8] = [
    "sr-rto",
    "sr-nack",
    "gbn",
    "ec-xor:32,8",
    "ec-mds:32,8",
    "best-effort",
    "best-effort+sr",
    "best-effort+exact",
];
/// Bytes of the exposed memory.
pub(crate) const EXPOSED: usize = 1 << 20;
/// A byte around the exposed memory. Exposed memory has no such byte.
pub(crate) const SECRET: u8 = 0x5e;
const MARGIN: usize = 5000;
const PACKET: usize = 4096;

/// Memory that end b exposes in the middle of a region.
pub(crate) struct Shelf {
    pub(crate) bytes: Vec<u8>,
    pub(crate) region: MemoryRegion,
    pub(crate) exposed: ExposedRegion,
}

/// A read by end a.
pub(crate) struct Read {
    pub(crate) offset: u64,
    pub(crate) recv: RecvHandle,
    pub(crate) target: MemoryRegion,
}

pub(crate) fn slice_of(region: MemoryRegion) -> MrSlice {
    region.slice(MARGIN as u64..(MARGIN + EXPOSED) as u64)
}

pub(crate) fn expose(world: &mut World) -> Shelf {
    let written = |byte| match byte {
        SECRET | UNTOUCHED => 0,
        byte => byte,
    };
    let bytes: Vec<u8> = SplitMix::new(9)
        .bytes(EXPOSED)
        .into_iter()
        .map(written)
        .collect();
    let mut memory = vec![SECRET; EXPOSED + 2 * MARGIN];
    memory[MARGIN..MARGIN + EXPOSED].copy_from_slice(&bytes);
    let end = &mut world.b;
    let region = end.endpoint.register(memory).expect("room");
    let exposed = end.endpoint.expose(end.qp, slice_of(region));
    Shelf {
        bytes,
        region,
        exposed: exposed.expect("nothing was sent"),
    }
}

pub(crate) fn by(scheme: &str) -> ReadOptions {
    ReadOptions {
        scheme: tag(scheme),
        deadline_ns: None,
    }
}

pub(crate) fn until(scheme: &str, deadline_ns: u64) -> ReadOptions {
    ReadOptions {
        deadline_ns: Some(deadline_ns),
        ..by(scheme)
    }
}

/// Posts a read of `length` bytes.
pub(crate) fn read(
    world: &mut World,
    region: ExposedRegion,
    offset: u64,
    length: usize,
    options: ReadOptions,
) -> Read {
    let end = &mut world.a;
    let target = end
        .endpoint
        .register(vec![UNTOUCHED; length])
        .expect("room");
    let posted = end
        .endpoint
        .post_read(end.qp, target.whole(), region, offset, options);
    Read {
        offset,
        recv: posted.expect("a free slot"),
        target,
    }
}

pub(crate) fn run_to_outcome(world: &mut World, reads: &[Read]) -> u64 {
    let start_ns = world.now_ns();
    let over = |_: &mut World| reads.iter().all(|read| read.recv.outcome().is_some());
    assert!(
        world.run_until(start_ns + 20 * SECOND, over),
        "reads are open"
    );
    world.now_ns() - start_ns
}

/// Checks that the bytes which arrived are those of the exposed memory, and that no others were
/// written.
pub(crate) fn check(world: &World, shelf: &Shelf, read: &Read) {
    let memory = world.a.endpoint.memory(read.target).expect("it has ended");
    let offset = usize::try_from(read.offset).expect("in memory");
    let sent = shelf.bytes.get(offset..).unwrap_or(&[]);
    let is_whole = read.recv.outcome() == WHOLE;
    for (chunk, (is, sent)) in (0..).zip(memory.chunks(PACKET).zip(sent.chunks(PACKET))) {
        let has_come = sent.starts_with(is);
        let is_named = read
            .recv
            .partial()
            .is_some_and(|partial| partial.has_chunk(chunk));
        if is_whole || is_named {
            assert!(has_come, "wrong bytes in chunk {chunk}");
        } else {
            let untouched = is.iter().all(|&byte| byte == UNTOUCHED);
            let may_be_there = read.recv.outcome() == FAILED && has_come;
            assert!(
                untouched || may_be_there,
                "chunk {chunk} was written, and is not named"
            );
        }
    }
}

/// Checks that nothing is left of the reads.
pub(crate) fn end(mut world: World, shelf: &Shelf, reads: Vec<Read>) {
    world.traffic.pass_all();
    for read in &reads {
        assert!(
            read.recv.outcome().is_some(),
            "read {} is open",
            read.recv.message()
        );
        check(&world, shelf, read);
    }
    // The numbers of the messages still agree: one more read arrives.
    let next = [read(&mut world, shelf.exposed, 100, 10_000, by("sr-nack"))];
    run_to_outcome(&mut world, &next);
    assert_eq!(next[0].recv.outcome(), WHOLE);
    check(&world, shelf, &next[0]);
    for read in reads.iter().chain(&next) {
        world
            .a
            .endpoint
            .deregister(read.target)
            .expect("no read is open");
    }
    world.expect_silence();
    assert!(
        world.b.endpoint.deregister(shelf.region).is_err(),
        "it is exposed"
    );
    let b = &mut world.b;
    b.endpoint
        .conceal(b.qp, shelf.exposed)
        .expect("it is exposed");
    b.endpoint
        .deregister(shelf.region)
        .expect("nothing is sent from it");
    for end in [&mut world.a, &mut world.b] {
        assert_eq!(end.stats().refused_controls, 0);
        end.endpoint.destroy_qp(end.qp).expect("it is there");
    }
}

pub(crate) fn is_request(seen: &Seen<'_>) -> bool {
    seen.says(|control| matches!(control, Control::Read(_)))
}
