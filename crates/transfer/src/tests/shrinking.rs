//! Paths that come to carry only smaller packets.

use std::thread;
use std::time::{Duration, Instant};

use farwrite::{SchemeName, SwiftOptions};
use farwrite_link::{LinkConfig, Loss};

use super::{
    TIMEOUT, adaptive, adaptive_settings, attempt, cross_as, delayed, pattern, until_delivered,
};
use crate::{EqdsOptions, ErrorKind, RateControl, SchemeSetting, SendSettings};

/// Sends over a path of jumbo frames that shrinks according to `steps`: when the first number of
/// packets has arrived, the path carries the second number of bytes of UDP payload. Returns both
/// results as JSON.
fn shrink(settings: SendSettings, bytes: usize, steps: &[(u64, usize)]) -> [serde_json::Value; 2] {
    let config = LinkConfig {
        loss: Loss::Iid { loss_packet: 0.001 },
        ..delayed(5)
    };
    let reports = cross_as(config, settings, &pattern(bytes), |link| {
        for &(packets, most_bytes) in steps {
            until_delivered(link, packets);
            link.set_most_bytes(most_bytes);
        }
    });
    for report in &reports {
        let details = report.details().join("\n");
        let said = ", 8912 before the path shrank";
        assert!(details.contains(said), "{details}");
    }
    let narrow = reports[0].narrow_mtu();
    let reports = reports.map(|report| serde_json::to_value(report).expect("JSON"));
    // Sealing takes 24 bytes of each packet.
    let mtu = reports[0]["mtu"].as_u64();
    assert_eq!(narrow.map(u64::from), mtu.map(|mtu| mtu + 24));
    reports
}

/// A path that shrinks twice does not end a transfer with this scheme and rate control.
fn survives(scheme: &str, rate_control: RateControl) {
    let settings = SendSettings {
        scheme: scheme.parse().expect("a scheme"),
        rate_control,
        mtu: None,
        ..adaptive_settings()
    };
    // Packets have 8912 bytes, then 1412, then 1332.
    let results = shrink(settings, 12_000_000, &[(300, 1472), (2500, 1400)]);
    for result in &results {
        assert_eq!(result["files"], 1, "{scheme}");
        assert_eq!(
            (&result["first_mtu"], &result["mtu"]),
            (&8912.into(), &1332.into()),
            "{scheme}: {result}"
        );
        assert_eq!(result["slots"], 8, "as many as before");
    }
    // Measurements from before the path shrank still count. Chunks before a pause do not.
    let judged = results[0]["send_loss"]["judged_chunks"].as_u64();
    assert!(judged > Some(700), "{scheme}: {}", results[0]);
}

/// The transfers mostly wait, so they run at the same time.
#[test]
fn a_path_that_shrinks_twice_is_survived_at_any_rate_control() {
    let fixed = RateControl::Fixed {
        rate_bps: 50_000_000,
    };
    let eqds = RateControl::Eqds(EqdsOptions {
        line_rate_bps: 50_000_000,
        first_window_bytes: 20_000,
    });
    let swift = RateControl::Swift(SwiftOptions::new(50_000_000, 1, 0));
    thread::scope(|scope| {
        scope.spawn(|| survives("sr-nack", swift));
        scope.spawn(|| survives("auto", adaptive()));
        scope.spawn(|| survives("sr-nack", fixed));
        scope.spawn(|| survives("ec-mds:32,8", adaptive()));
        scope.spawn(|| survives("sr-nack", eqds));
    });
}

/// The path shrinks once more than a transfer continues.
#[test]
fn a_path_that_shrinks_too_often_ends_with_a_typed_error() {
    let sizes = [8868, 5000, 1472];
    let settings = SendSettings {
        scheme: SchemeSetting::Named(SchemeName::SrNack),
        rate_control: RateControl::Fixed {
            rate_bps: 50_000_000,
        },
        mtu: None,
        ..adaptive_settings()
    };
    let crossing = attempt(delayed(5), settings, &pattern(12_000_000), |link| {
        for most_bytes in sizes {
            // Much more than the control packets while data does not move.
            let bytes = || link.counters().forward.link.delivered_bytes;
            let (enough, end) = (bytes() + 600_000, Instant::now() + TIMEOUT);
            while bytes() < enough && Instant::now() < end {
                thread::sleep(Duration::from_millis(2));
            }
            link.set_most_bytes(most_bytes);
        }
    });
    assert!(!crossing.has_arrived);
    let mut of_sender = Vec::new();
    for shrunk in &crossing.shrunk {
        assert!(shrunk.carries < shrunk.mtu, "{shrunk}");
        if !of_sender.contains(&shrunk.carries) {
            of_sender.push(shrunk.carries);
        }
    }
    assert_eq!(of_sender, [8808, 4596], "each is tried");
    let [sent, received] = crossing
        .results
        .map(|result| result.expect_err("too often"));
    let ErrorKind::RouteShrunk(last) = sent.kind() else {
        panic!("{sent:?}");
    };
    assert_eq!((last.mtu, last.carries), (4596, 1412), "{sent}");
    assert!(sent.to_string().contains("send again"), "{sent}");
    assert_eq!(received.kind(), ErrorKind::Unreachable, "{received}");
}
