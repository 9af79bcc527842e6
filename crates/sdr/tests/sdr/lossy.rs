//! Two queue pairs over a network that loses, duplicates and reorders packets (paper sections 3.1
//! to 3.3).

use farwrite_rng::SplitMix;
use farwrite_sdr::{ImmediateSplit, QpConfig};
use farwrite_wire::control::Outcome;
use proptest::prelude::*;

use crate::small;
use crate::world::{Faults, Message, Plan, RTT_NS, World};

fn messages(seed: u64, count: u64, config: &QpConfig) -> Vec<Message> {
    let mut random = SplitMix::new(seed);
    let mut message = |_| {
        let plan = match random.below(12) {
            0 | 1 => Plan::Stream,
            2 => Plan::Early,
            3 => Plan::Cancel,
            4 => Plan::Withdraw,
            5 => Plan::TooLong,
            _ => Plan::Plain,
        };
        let least = u64::from(plan == Plan::TooLong);
        let most = if random.percent(50) {
            200
        } else {
            config.max_message_bytes
        };
        let with_immediate = config.split.user_bits > 0 && random.percent(40);
        Message {
            plan,
            length: least + random.below(most),
            immediate: with_immediate.then(|| u32::try_from(random.below(1 << 32)).unwrap()),
            hasty: random.percent(30),
        }
    };
    (0..count).map(&mut message).collect()
}

fn config() -> impl Strategy<Value = QpConfig> {
    let splits = prop_oneof![
        Just((10, 18, 4)),
        Just((8, 22, 2)),
        Just((2, 30, 0)),
        Just((16, 9, 7)),
        Just((3, 13, 16)),
        Just((16, 8, 8)),
    ];
    let shape = (
        prop_oneof![Just(1_u32), Just(3), Just(4), Just(70)],
        0_u32..3,
        4_u8..7,
        1_u8..4,
    );
    (splits, shape).prop_map(|((id_bits, offset_bits, user_bits), shape)| {
        let (packets_per_chunk, slots_log, generations, channels) = shape;
        QpConfig {
            packets_per_chunk,
            split: ImmediateSplit {
                id_bits,
                offset_bits,
                user_bits,
            },
            slots: 1 << slots_log,
            generations,
            channels,
            ..small()
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn every_message_ends_as_planned(
        config in config(),
        loss in 0_u64..35,
        duplicate in 0_u64..30,
        jitter_ns in 0..RTT_NS / 2,
        late_vanish: bool,
        dies_ns in prop::option::weighted(0.2, 0..10 * RTT_NS),
        seed: u64,
    ) {
        let messages = messages(seed, 60, &config);
        let dead_ns = dies_ns.map_or((0, 0), |at_ns| (at_ns, at_ns + 5_000_000_000));
        let faults = Faults { loss, duplicate, jitter_ns, dead_ns, late_vanish, lost: [0; 3] };
        let mut world = World::new(config, faults, seed, messages.clone());
        world.run();
        for (number, message) in (0..).zip(&messages) {
            let got = world.receiver_outcomes[&number];
            let want = match message.plan {
                Plan::Plain | Plan::Stream => Outcome::Whole,
                Plan::Early => Outcome::Partial,
                _ => Outcome::Failed,
            };
            prop_assert_eq!(got, want, "message {}: {:?}", number, message);
            prop_assert_eq!(world.sender_outcomes[&number], want);
        }
    }
}

/// Returns messages that are all sent and received whole.
pub(crate) fn plain(count: usize, length: u64) -> Vec<Message> {
    let message = Message {
        plan: Plan::Plain,
        length,
        immediate: None,
        hasty: false,
    };
    vec![message; count]
}

#[test]
fn without_faults_control_is_sparse_and_nothing_is_sent_twice() {
    let config = QpConfig {
        mtu: 512,
        ..small()
    };
    let mut world = World::new(config, Faults::NONE, 0, plain(100, 1000));
    world.run();
    assert_eq!((world.late, world.duplicates), (0, 0));
    // A message costs an offer, a clearance, one report, its end, and the copies of offer and
    // clearance that go out within the first round trip.
    assert!(
        world.controls < 100 * 10,
        "{} control messages",
        world.controls
    );
}
