//! Controllers, load balancers and repairs of another crate: those of `examples/own`.

use std::ops::Range;

use farwrite_experiment::extensions::{Repair, Unacknowledged};
use farwrite_experiment::plan::{Plan, sweep};
use farwrite_experiment::{Extensions, Outcome, TransportSettings};

#[path = "../../../../examples/own/src/aimd.rs"]
mod aimd;
#[path = "../../../../examples/own/src/gaps.rs"]
mod gaps;
#[path = "../../../../examples/own/src/shortest.rs"]
mod shortest;

const PLAN: &str = include_str!("../../../../examples/own/plan.toml");

/// Repeats all packets after each second without news.
struct Slow;

impl Repair for Slow {
    fn on_arrived(&mut self, _packet: u64, _sent: &Unacknowledged) -> Range<u64> {
        0..0
    }

    fn on_timeout(&mut self, sent: &Unacknowledged) -> Range<u64> {
        sent.oldest..sent.sent_end
    }

    fn timeout_ns(&self, _sent: &Unacknowledged) -> u64 {
        1_000_000_000
    }
}

fn own() -> Extensions {
    Extensions::new()
        .controller("aimd", aimd::Aimd::new)
        .repair("gaps", gaps::Gaps::new)
        .repair("slow", |_path| Slow)
        .balancer("shortest", |_seed| shortest::Shortest)
}

fn outcomes(text: &str) -> Vec<Outcome> {
    let plan = Plan::read_with(text, &|_| Err(String::new()), &own()).unwrap();
    let ran = sweep(&plan, 2, None, |_| true).into_iter();
    ran.map(|case| case.outcome.unwrap()).collect()
}

/// The page shows the files of the example.
#[test]
fn the_page_has_the_code_of_the_example() {
    let page = include_str!("../../../../docs/sim-own.md");
    let files = [
        include_str!("../../../../examples/own/src/main.rs"),
        include_str!("../../../../examples/own/src/aimd.rs"),
        include_str!("../../../../examples/own/src/gaps.rs"),
        include_str!("../../../../examples/own/src/shortest.rs"),
    ];
    let blocks: Vec<_> = page.split("```rust\n").skip(1).collect();
    assert_eq!(blocks.len(), files.len());
    for (block, file) in blocks.into_iter().zip(files) {
        let (code, _) = block.split_once("```").unwrap();
        assert!(file.ends_with(code), "{code}");
    }
}

/// In the order of the runs: by switches, then by transports.
#[test]
fn a_plan_names_what_a_program_adds() {
    let runs = outcomes(PLAN);
    let [
        ecmp,
        own_ecmp,
        gaps_ecmp,
        shortest,
        own_shortest,
        gaps_shortest,
    ] = &runs[..]
    else {
        panic!("{}", runs.len());
    };
    let all = [
        ecmp,
        own_ecmp,
        gaps_ecmp,
        shortest,
        own_shortest,
        gaps_shortest,
    ];
    assert!(all.iter().all(|run| run.done() == 6));
    // ECMP keeps each flow on its path.
    assert_eq!(
        (own_ecmp.totals.path_changes, gaps_ecmp.totals.path_changes),
        (0, 0)
    );
    assert!(own_shortest.totals.path_changes > 100);
    assert!(gaps_shortest.totals.path_changes > 100);
    // The controller is another one than DCQCN.
    assert!(ecmp.totals.marked > 0 && ecmp.trace_hash != own_ecmp.trace_hash);
}

/// One flow over a cable that loses a hundredth of its frames: the repair repeats what is lost, and not much more.
#[test]
fn a_repair_of_another_crate_brings_everything() {
    let text = "loss = [0.01]\ntransport = [\"gaps\", \"roce-lossy\"]\n[topology.rack]\nshape = \"star\"\nhosts = 2\n\
                cable = { rate = \"100Gbit\", delay = \"1us\" }\n[workload.one]\npattern = \"incast\"\nsenders = 1\n\
                size = \"8MB\"\n";
    let runs = outcomes(text);
    let (gaps, gone_back) = (&runs[0], &runs[1]);
    assert_eq!((gaps.done(), gone_back.done()), (1, 1));
    // 2000 packets over two cables: about 40 losses.
    assert!((20..200).contains(&gaps.repeated()), "{}", gaps.repeated());
    assert!(gone_back.repeated() > 2 * gaps.repeated());
}

/// The cable loses everything: without a limit of retransmissions, a flow goes on for eight timeouts of its repair.
#[test]
fn a_flow_waits_for_the_timeouts_of_its_repair() {
    let text = "[topology.rack]\nshape = \"star\"\nhosts = 2\ncable = { rate = \"100Gbit\", delay = \"1us\" }\n\
                [[topology.rack.changes]]\nat = \"1us\"\ncable = [\"host1\", \"switch0\"]\nstate = \"down\"\n\
                [workload.one]\npattern = \"incast\"\nsenders = 1\nsize = \"1MB\"\n\
                [transport.slow]\nprotocol = \"slow\"\nretries = \"unlimited\"\n";
    let timeouts = outcomes(text)[0].timeouts();
    assert!((7..10).contains(&timeouts), "{timeouts}");
}

#[test]
fn names_that_a_program_does_not_have_are_refused() {
    let refused = |from: &str, to: &str| {
        let text = PLAN.replace(from, to);
        assert_ne!(text, PLAN);
        let plan = Plan::read_with(&text, &|_| Err(String::new()), &own());
        plan.unwrap_err().to_string()
    };
    for (from, to, want) in [
        (
            "gaps@aimd",
            "gaps@aimt",
            "transport: protocol = \"gaps@aimt\": this program has no controller \"aimt\"; of its own, it has aimd",
        ),
        (
            "gaps@aimd",
            "gap@aimd",
            "transport: protocol = \"gap@aimd\": this program has no protocol or repair \"gap\"; of its own, it has \
             gaps, slow",
        ),
        (
            "gaps@aimd",
            "eqds@aimd",
            "transport: @ with a controller: eqds has no such setting",
        ),
        (
            "balancer = \"shortest\"",
            "balancer = \"longest\"",
            "switch.shortest: switch balancer = \"longest\": this program has no load balancer of this name; it has \
             shortest",
        ),
    ] {
        let got = refused(from, to);
        assert!(got.starts_with(want), "{got}");
    }
    let alone = TransportSettings::new("irn@aimd").transport();
    let alone = alone.unwrap_err().to_string();
    assert!(
        alone.contains("no controller \"aimd\"; of its own, it has none"),
        "{alone}"
    );
}
