//! How fast libraries seal and open the payloads of packets, on one core. Prints GB a second of processor time.
//!
//! `sealed GB/s` copies each payload and encrypts it, as a sender does. `opened GB/s` copies it and decrypts it.

use std::hint::black_box;
use std::time::Instant;

/// Payloads of sealed packets in IP packets of 1500, 4160 and 9000 bytes, which have 88 bytes more.
const PAYLOADS: [usize; 3] = [1412, 4072, 8912];
/// More than the caches that one core has alone.
const MEMORY: usize = 8 << 20;
/// The fastest of this many tries counts: other programs make a try slower, never faster.
const TRIES: usize = 200;

/// Runs `each` over the memory. Returns GB a second.
fn speed(memory: &[u8], payload: usize, mut each: impl FnMut(&[u8])) -> f64 {
    let start = Instant::now();
    memory.chunks_exact(payload).for_each(&mut each);
    (memory.len() / payload * payload) as f64 / start.elapsed().as_secs_f64() / 1e9
}

macro_rules! row {
    ($library:ident, $name:literal, $algorithm:ident, $memory:expr) => {
        for payload in PAYLOADS {
            use $library::aead::{Aad, LessSafeKey, Nonce, UnboundKey, $algorithm};
            let key = UnboundKey::new(&$algorithm, &vec![7; $algorithm.key_len()]).expect("a key");
            let key = LessSafeKey::new(key);
            let nonce = || Nonce::assume_unique_for_key([0; 12]);
            let aad = || Aad::from([0_u8; 31]);
            let mut packet = vec![0; payload];
            let mut seal = |bytes: &[u8]| {
                packet.copy_from_slice(bytes);
                let tag = key.seal_in_place_separate_tag(nonce(), aad(), &mut packet);
                black_box(tag.expect("sealed").as_ref());
            };
            let sealed = (0..TRIES)
                .map(|_| speed($memory, payload, &mut seal))
                .fold(0.0, f64::max);
            let mut text = $memory[..payload].to_vec();
            key.seal_in_place_append_tag(nonce(), aad(), &mut text)
                .expect("sealed");
            let mut opened = text.clone();
            let mut open = |_: &[u8]| {
                opened.copy_from_slice(&text);
                black_box(
                    key.open_in_place(nonce(), aad(), &mut opened)
                        .expect("opened"),
                );
            };
            let opened = (0..TRIES)
                .map(|_| speed($memory, payload, &mut open))
                .fold(0.0, f64::max);
            println!(
                "{:<8} {:<18} {payload:>6} {sealed:>12.2} {opened:>12.2}",
                stringify!($library),
                $name
            );
        }
    };
}

fn main() {
    let memory = vec![0x5a; MEMORY];
    println!(
        "{:<8} {:<18} {:>6} {:>12} {:>12}",
        "library", "cipher", "bytes", "sealed GB/s", "opened GB/s"
    );
    row!(ring, "AES-256-GCM", AES_256_GCM, &memory);
    row!(ring, "AES-128-GCM", AES_128_GCM, &memory);
    row!(ring, "ChaCha20-Poly1305", CHACHA20_POLY1305, &memory);
    row!(aws_lc_rs, "AES-256-GCM", AES_256_GCM, &memory);
    row!(aws_lc_rs, "AES-128-GCM", AES_128_GCM, &memory);
    row!(aws_lc_rs, "ChaCha20-Poly1305", CHACHA20_POLY1305, &memory);
}
