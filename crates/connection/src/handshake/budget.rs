//! How many openings and exchanges about a code a responder computes in a second (P12.4). Each costs operations
//! on a curve, and anyone who receives at an address can send them.

use std::net::{IpAddr, SocketAddr};

/// Openings and exchanges a second of all sources, and how many may come at once.
const OF_ALL: [u64; 2] = [1_000, 250];
/// Openings and exchanges a second of one source, and how many may come at once.
const OF_SOURCE: [u64; 2] = [20, 40];
/// Number of buckets that all sources share.
const BUCKETS: usize = 256;

/// The time at which a bucket is full again. It grows with each opening.
#[derive(Clone, Copy, Default)]
struct Bucket {
    full_ns: u64,
}

impl Bucket {
    fn take(&mut self, now_ns: u64, [per_s, burst]: [u64; 2]) -> bool {
        let each_ns = 1_000_000_000 / per_s;
        let full_ns = self.full_ns.max(now_ns) + each_ns;
        let may = full_ns - now_ns <= each_ns * burst;
        if may {
            self.full_ns = full_ns;
        }
        may
    }
}

/// Limits the work that strangers can cause. Its memory does not grow.
pub(super) struct Budget {
    /// Decides which sources share a bucket, so that nobody can choose to share that of another.
    secret: [u8; 32],
    all: Bucket,
    sources: Box<[Bucket; BUCKETS]>,
}

impl Budget {
    pub(super) fn new(secret: [u8; 32]) -> Self {
        Self {
            secret,
            all: Bucket::default(),
            sources: Box::new([Bucket::default(); BUCKETS]),
        }
    }

    /// Whether an opening or an exchange from `source` may be computed now.
    pub(super) fn take(&mut self, now_ns: u64, source: SocketAddr) -> bool {
        let place = self.place(source.ip());
        // A source that is over its own limit uses up nothing of the others' limit.
        self.sources[place].take(now_ns, OF_SOURCE) && self.all.take(now_ns, OF_ALL)
    }

    /// A source is one IPv4 address, or one IPv6 network of 64 bits, which is the least that a customer
    /// gets.
    fn place(&self, ip: IpAddr) -> usize {
        let mut hasher = blake3::Hasher::new_keyed(&self.secret);
        match ip.to_canonical() {
            IpAddr::V4(ip) => hasher.update(&ip.octets()),
            IpAddr::V6(ip) => hasher.update(&ip.octets()[..8]),
        };
        usize::from(hasher.finalize().as_bytes()[0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(budget: &mut Budget, now_ns: u64, source: &str, tries: usize) -> usize {
        let source = source.parse().expect("an address");
        (0..tries).filter(|_| budget.take(now_ns, source)).count()
    }

    #[test]
    fn one_source_cannot_use_up_the_time_of_others() {
        let mut budget = Budget::new([3; 32]);
        assert_eq!(allowed(&mut budget, 0, "[2001:db8::1]:1", 1000), 40);
        assert_eq!(
            allowed(&mut budget, 0, "[2001:db8::2]:9", 1000),
            0,
            "the same network"
        );
        assert_eq!(allowed(&mut budget, 0, "192.0.2.1:1", 30), 30);
        let second = 1_000_000_000;
        assert_eq!(allowed(&mut budget, second, "[2001:db8::1]:1", 1000), 20);
    }

    #[test]
    fn all_together_have_a_limit() {
        let mut budget = Budget::new([3; 32]);
        let mut come = |now_ns| -> usize {
            let sources = (0..60_000).map(|n| format!("10.1.{}.{}:1", n / 256, n % 256));
            sources
                .map(|source| allowed(&mut budget, now_ns, &source, 1))
                .sum()
        };
        assert_eq!(come(0), 250);
        assert_eq!(come(100_000_000), 100);
    }
}
