//! What sealing costs: the full stack with sealed and with unsealed packets of the same IP length. Sealed packets
//! have an ICRC, or have none.

use std::time::Duration;

use farwrite::{
    Cipher, QpOptions, RateControl, SEALING_BYTES, SchemeName, Sealing, packet_overhead_bytes,
};
use ring::aead::{AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};

use crate::Failure;
use crate::meter::{Meter, Moved};
use crate::stack::StackPair;
use crate::table;
use farwrite_units::stats::median;

/// Lengths of IP packets: Ethernet, a payload of 4096 bytes, jumbo frames.
const IP_BYTES: [u32; 3] = [1500, 4160, 9000];
/// Much more than the caches.
const BYTES: usize = 256 << 20;
/// What the cipher is tried with: more than the caches, and how long.
const FLOOR_BYTES: usize = 64 << 20;
const FLOOR_TIME: Duration = Duration::from_millis(300);
const RATE: RateControl = RateControl::Fixed {
    rate_bps: 100_000_000_000,
};

/// How the packets of a stack are protected: sealing, and whether the ICRC is omitted.
const WAYS: [(Sealing, bool); 3] = [
    (Sealing::Off, false),
    (Sealing::Required, false),
    (Sealing::Required, true),
];

/// Moves the memory in each way in alternation, and prints medians.
pub(crate) fn run(runs: usize) -> Result<(), Failure> {
    let mut rows = Vec::new();
    let mut ciphers = Vec::new();
    for ip_bytes in IP_BYTES {
        let stack = |(sealing, omit_icrc): (Sealing, bool)| {
            let payload = ip_bytes - packet_overhead_bytes(true) - sealing.reserved_bytes();
            let options = QpOptions {
                rate_control: RATE,
                sealing,
                omit_icrc,
                ..QpOptions::default()
            };
            let (source, target) = (vec![0x5a; BYTES], vec![0xff; BYTES]);
            StackPair::with_options(payload / 4 * 4, options, 0, source, target)
        };
        let [plain, sealed, tagged] = WAYS.map(stack);
        let (mut plain, mut sealed, mut tagged) = (plain?, sealed?, tagged?);
        ciphers.extend(sealed.cipher()?);
        let scheme = SchemeName::SrNack.tag();
        let mut rounds = Vec::new();
        for _ in 0..runs {
            rounds.push([plain.run(scheme)?, sealed.run(scheme)?, tagged.run(scheme)?]);
        }
        rows.push(row(
            ip_bytes,
            &rounds,
            floor(ip_bytes, ciphers.first().copied())?,
        ));
    }
    let cipher = ciphers.first().map(ToString::to_string);
    let title = format!(
        "sealed packets ({}), with and without ICRC: {} MiB of cold memory over loopback, both ends in one \
         process, sr-nack, a fixed rate;\nmedians of {runs} runs, in turn. A core-second is processor time \
         of both ends, user and system.",
        cipher.unwrap_or_default(),
        BYTES >> 20
    );
    let header = [
        "IP packet",
        "unsealed GB/core-s",
        "sealed GB/core-s",
        "ratio",
        "without ICRC GB/core-s",
        "ratio",
        "cipher and copies GB/core-s",
        "lost",
    ];
    table::print(&title, header, &rows);
    Ok(())
}

/// Bytes per core-second of what sealing cannot do without: each payload is copied and encrypted, and
/// copied and decrypted.
fn floor(ip_bytes: u32, cipher: Option<Cipher>) -> Result<f64, Failure> {
    let algorithm = match cipher {
        Some(Cipher::ChaCha20Poly1305) => &CHACHA20_POLY1305,
        _ => &AES_256_GCM,
    };
    let failed = |_| "the cipher failed";
    let key = LessSafeKey::new(UnboundKey::new(algorithm, &[7; 32]).map_err(failed)?);
    let bytes = (ip_bytes - packet_overhead_bytes(true) - SEALING_BYTES) as usize;
    let source = vec![0x5a; FLOOR_BYTES];
    let (mut packet, mut opened) = (vec![0; bytes], vec![0; bytes]);
    let nonce = || Nonce::assume_unique_for_key([0; 12]);
    let meter = Meter::start();
    let mut moved = 0;
    while meter.read().cpu < FLOOR_TIME {
        for payload in source.chunks_exact(bytes) {
            packet.copy_from_slice(payload);
            let aad = Aad::from([0; 31]);
            let tag = key
                .seal_in_place_separate_tag(nonce(), aad, &mut packet)
                .map_err(failed)?;
            opened.copy_from_slice(&packet);
            key.open_in_place_separate_tag(nonce(), Aad::from([0; 31]), tag, &mut opened, 0..)
                .map_err(failed)?;
            moved += bytes;
        }
    }
    Ok(moved as f64 / meter.read().cpu.as_secs_f64())
}

fn row(ip_bytes: u32, rounds: &[[Moved; 3]], floor: f64) -> [String; 8] {
    let of = |what: &dyn Fn(&[Moved; 3]) -> f64| median(rounds.iter().map(what));
    let gigabytes = |way: usize| of(&|round| round[way].bytes_per_core_second() / 1e9);
    let ratio = |way: usize| {
        of(&|round| round[way].bytes_per_core_second() / round[0].bytes_per_core_second())
    };
    let lost = of(&|[_, sealed, _]| sealed.loss_packet() * 100.0);
    [
        format!("{ip_bytes} bytes"),
        format!("{:.2}", gigabytes(0)),
        format!("{:.2}", gigabytes(1)),
        format!("{:.2}", ratio(1)),
        format!("{:.2}", gigabytes(2)),
        format!("{:.2}", ratio(2)),
        format!("{:.2}", floor / 1e9),
        format!("{lost:.2} %"),
    ]
}
