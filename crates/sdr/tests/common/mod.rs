//! What the tests share: shapes, and the information blob of a peer that has none.

#![allow(dead_code)] // Each test program uses its part.

pub mod world;

use farwrite_sdr::{ImmediateSplit, QpConfig, QpInfo, SdrQp};

/// A small shape with short packets, in which everything wraps quickly.
pub fn small() -> QpConfig {
    QpConfig {
        mtu: 64,
        packets_per_chunk: 4,
        split: ImmediateSplit {
            id_bits: 10,
            offset_bits: 18,
            user_bits: 4,
        },
        slots: 4,
        max_message_bytes: 4096,
        generations: 4,
        channels: 2,
    }
}

/// A peer of the given shape.
pub fn info(config: QpConfig) -> QpInfo {
    let channels = usize::from(config.channels);
    let address = "192.0.2.1:4791".parse().unwrap();
    QpInfo {
        config,
        control: address,
        channels: vec![address; channels],
        control_qpn: 0x11,
        data_qpns: vec![vec![0x12; channels]; config.generations.into()],
        control_key: [7; 32],
    }
}

/// A queue pair connected to a peer of its own shape.
pub fn connected(config: QpConfig) -> SdrQp {
    let mut qp = SdrQp::new(config).unwrap();
    qp.connect(&info(config)).unwrap();
    qp
}

/// A small seeded generator (splitmix64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// 0 to `limit`, `limit` not included.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    /// True in `percent` of 100 cases.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}
