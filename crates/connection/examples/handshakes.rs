//! Measures handshakes at a responder: how many a core finishes in a second, and what an open one takes.

use std::fs;

use farwrite::{Endpoint, UdpConfig};
use farwrite_connection::Keys;
use farwrite_connection::measuring::{Measured, Taken};
use farwrite_keys::{Identity, KnownPeers, PeerProblem, Psk};

const HANDSHAKES: u32 = 5000;
const PAGE_BYTES: u64 = 4096;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let knows = |key| -> Result<KnownPeers, PeerProblem> {
        let mut known = KnownPeers::default();
        known.add("peer", key)?;
        Ok(known)
    };
    let [a, b] = [Identity::generate()?, Identity::generate()?];
    let (public_a, public_b) = (a.public(), b.public());
    let of_b = Keys::of_identity(b, knows(public_a)?);
    let of_unaware = Keys::of_identity(a.clone(), knows(public_a)?);
    let of_a = Keys::of_identity(a, knows(public_b)?);
    let psk = Keys::of_psk(&Psk::generate()?);
    let stranger = Keys::of_psk(&Psk::generate()?);
    for (name, keys, peer) in [
        ("identities", &of_b, &of_a),
        ("pre-shared key", &psk, &psk),
        (
            "another key for the listener's identity, refused",
            &of_b,
            &of_unaware,
        ),
        ("another pre-shared key, refused", &psk, &stranger),
    ] {
        let mut measured = Measured::new(keys, peer);
        for _ in 0..HANDSHAKES {
            measured.handshake(true);
        }
        let each = measured.median();
        let rate = 1.0 / each.as_secs_f64();
        println!(
            "{name}: {:.1} us, {rate:.0} a second",
            each.as_secs_f64() * 1e6
        );
    }
    // A responder takes 16 of one peer.
    let before = resident_bytes()?;
    let mut open: Vec<_> = (0..200).map(|_| Measured::new(&of_b, &of_a)).collect();
    let empty = resident_bytes()?;
    let accepted = open
        .iter_mut()
        .flat_map(|one| (0..16).map(|_| one.handshake(false)));
    let accepted = accepted.filter(|is_accepted| *is_accepted).count() as u64;
    let bytes = (resident_bytes()? - empty) / accepted;
    println!("an open handshake: {bytes} bytes ({accepted} open)");
    println!(
        "a responder without handshakes: {} bytes",
        (empty - before) / 200
    );
    let mut endpoint = Endpoint::over_udp(&UdpConfig::new("127.0.0.1:0".parse()?))?;
    let mut taken = Taken::default();
    taken.take(&mut endpoint);
    let before = resident_bytes()?;
    for _ in 0..1000 {
        taken.take(&mut endpoint);
    }
    let bytes = (resident_bytes()? - before) / 1000;
    println!("its session queue pair and route: {bytes} bytes (1000 of them)");
    Ok(())
}

/// The resident memory of this process.
fn resident_bytes() -> Result<u64, Box<dyn std::error::Error>> {
    let pages = fs::read_to_string("/proc/self/statm")?;
    let resident = pages.split_whitespace().nth(1).ok_or("no such field")?;
    Ok(resident.parse::<u64>()? * PAGE_BYTES)
}
