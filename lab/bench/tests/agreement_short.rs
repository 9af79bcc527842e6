//! Shipped endpoints in virtual time agree with the completion-time model. This is a small part of
//! `make -C lab bench-agreement`. Each run is the same, because everything follows from the seed.

use std::path::Path;
use std::process::{Command, Output};

fn agreement(arguments: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_agreement");
    let output = Command::new(program).args(arguments).output();
    output.expect("the program was built")
}

/// Returns the lines between the head and the summary.
fn rows(output: &Output) -> usize {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines()
        .filter(|line| line.matches('|').count() == 2)
        .count()
        - 2
}

#[track_caller]
fn check(arguments: &str, cells: usize) {
    let output = agreement(&arguments.split(' ').collect::<Vec<_>>());
    assert!(output.status.success(), "{output:#?}");
    assert_eq!(rows(&output), cells, "{output:#?}");
}

#[test]
fn short_messages_agree_at_every_loss() {
    check("--size-kib 128 --samples 1000", 5 * 4);
}

#[test]
fn long_messages_agree_too() {
    check("--size-kib 8192 --loss 1e-5,1e-4 --samples 40", 2 * 4);
    let schemes = "--schemes sr-nack;ec-mds:32,8";
    check(
        &format!("--size-kib 131072 --loss 1e-4 --samples 3 {schemes}"),
        2,
    );
}

#[test]
fn bursts_and_other_round_trips_agree() {
    check(
        "--rtt-ms 10,100 --burst 10 --loss 1e-3 --size-kib 1024 --samples 300",
        2 * 4,
    );
}

/// A burst hits each of the interleaved groups once, so few groups fail.
#[test]
fn bursts_across_interleaved_groups_agree() {
    let path = "--rate-gbps 100 --rtt-ms 30 --size-kib 8192 --loss 1e-2 --burst 20";
    let schemes = "--schemes ec-mds:32,8;ec-xor:32,8";
    check(&format!("{path} --samples 100 {schemes}"), 2);
}

/// Repairs in rounds: missing chunks of groups, and lost reports.
#[test]
fn many_losses_agree() {
    let schemes = "--schemes sr-nack;ec-xor:32,8";
    check(
        &format!("--size-kib 8192 --loss 1e-2 --samples 400 {schemes}"),
        2,
    );
    check(
        &format!("--size-kib 131072 --loss 1e-2 --samples 8 {schemes}"),
        2,
    );
}

/// A lost report costs a round of repair.
#[test]
fn messages_are_faster_if_no_reports_are_lost() {
    let mean_ms = |more: &[&str]| -> f64 {
        let cell = "--size-kib 8192 --loss 1e-2 --samples 200 --schemes ec-xor:32,8";
        let arguments: Vec<_> = cell.split(' ').chain(more.iter().copied()).collect();
        let output = agreement(&arguments);
        let stdout = String::from_utf8(output.stdout).unwrap();
        let row = stdout.lines().find(|line| line.contains("ec-xor")).unwrap();
        let means = row.split('|').nth(1).unwrap();
        means.split_whitespace().next().unwrap().parse().unwrap()
    };
    let (all_lossy, kept) = (mean_ms(&[]), mean_ms(&["--keep-reports"]));
    assert!(kept < all_lossy, "{kept} ms, {all_lossy} ms");
    let refused = agreement(&["--keep-reports", "--sites", "2"]);
    let why = String::from_utf8(refused.stderr).unwrap();
    assert!(why.contains("--keep-reports: for single messages"), "{why}");
}

/// The shipped Go-back-N keeps chunks that the model repeats, so this cell deviates.
#[test]
fn a_deviation_beyond_the_goal_is_an_exit_status() {
    let arguments = "--loss 1e-2 --size-kib 1024 --samples 1000 --schemes gbn";
    let output = agreement(&arguments.split(' ').collect::<Vec<_>>());
    assert_eq!(output.status.code(), Some(1), "{output:#?}");
    assert!(
        String::from_utf8_lossy(&output.stdout).contains("!!"),
        "{output:#?}"
    );
}

/// Messages of one packet take a round trip, or three more after a timeout.
#[test]
fn times_are_shown_by_round_trips_and_written_as_csv() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("times.csv");
    let file = path.to_str().expect("text");
    let arguments = "--loss 0.1 --size-kib 4 --samples 1000 --schemes sr-rto --spectrum --csv";
    let output = agreement(&[&arguments.split(' ').collect::<Vec<_>>()[..], &[file]].concat());
    let text = String::from_utf8_lossy(&output.stdout);
    let counts = text.lines().filter_map(|line| {
        let (time, count) = line.split_once(" round trips: ")?;
        Some((time.trim().to_owned(), count.parse::<u32>().ok()?))
    });
    let counts: Vec<_> = counts.collect();
    assert_eq!(counts.iter().map(|(_, count)| count).sum::<u32>(), 1000);
    let of = |wanted| counts.iter().find(|(time, _)| time == wanted);
    // About 880 of 1000 messages: their packet is not lost, and neither their offer nor their last
    // acknowledgement is lost twice. These two are repeated after a 32nd of a round trip.
    let at_once = of("1.000").map_or(0, |(_, count)| *count);
    assert!((830..930).contains(&at_once), "{counts:?}");
    let written = std::fs::read_to_string(&path).expect("the file");
    let (head, row) = written.trim_end().split_once('\n').expect("two lines");
    assert_eq!(head.split(',').count(), row.split(',').count());
    assert!(
        row.starts_with("\"sr-rto\",4096,,400000000000,0.025,0.1,0,4096,1000,1,0.0"),
        "{row}"
    );
}

#[test]
fn what_cannot_be_is_refused() {
    for (arguments, want) in [
        (["--size-kib", "8388609"], "1 to 8388608"),
        (["--rtt-ms", "1"], "at least 10"),
        (["--samples", "0"], "at least 1"),
        (["--sites", "1"], "2 to 32"),
        (["--loss", "2"], "0 to 0.99"),
    ] {
        let output = agreement(&arguments);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(want), "{text}");
    }
}

/// Rounds of a ring wait for each other, as in the model.
#[test]
fn rings_of_sites_agree() {
    let schemes = "--schemes sr-rto;ec-mds:32,8";
    check(
        &format!("--sites 2,4 --size-kib 1024 --loss 1e-4,1e-3 --samples 80 {schemes}"),
        2 * 2 * 2,
    );
}
