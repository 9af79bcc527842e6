//! Both ends in one process, with an emulated link between their UDP sockets.

use std::fs;
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use farwrite::SchemeName;
use farwrite::fabric::emulator::{Channel as Ports, EmulatorConfig, LinkEmulator, Side};
use farwrite_link::{LinkConfig, Loss};
use farwrite_session::files::{Source, Special};
use farwrite_session::{Channel, Listener, Psk};

use crate::{
    Cancel, Event, Host, Observer, RateControl, ReceiveSettings, Report, SETUP, SchemeChoice,
    SendSettings, Visitor, receive, send,
};

const TIMEOUT: Duration = Duration::from_secs(60);

/// Nobody looks.
struct Unobserved;

impl Observer for Unobserved {
    fn observe(&self, _: Event) {}
}

/// A link that comes to be when the receiver hears where the sender is.
struct Link {
    config: LinkConfig,
    receiver: SocketAddr,
    emulator: OnceLock<LinkEmulator>,
}

impl Link {
    fn emulator(&self, sender: SocketAddr) -> &LinkEmulator {
        self.emulator.get_or_init(|| {
            let config = EmulatorConfig {
                forward: self.config,
                backward: self.config,
                seed: 7,
                channels: vec![Ports {
                    a: Side::facing(sender),
                    b: Side::facing(self.receiver),
                }],
                ..EmulatorConfig::default()
            };
            LinkEmulator::start(&config).expect("a link that can be")
        })
    }
}

/// Moves bytes across a link; `meddle` is called when they are on their way.
fn cross(
    config: LinkConfig,
    scheme: SchemeChoice,
    rate_bps: u64,
    bytes: &[u8],
    meddle: impl Fn(&LinkEmulator) + Sync,
) -> [Report; 2] {
    let (from, to) = (
        tempfile::tempdir().expect("directory"),
        tempfile::tempdir().expect("directory"),
    );
    let path = from.path().join("file");
    fs::write(&path, bytes).expect("write");
    let source = Source::scan(&[path], Special::Refuse).expect("a file");
    let psk = Psk::generate().expect("key");
    let mut listener = Listener::bind(([127, 0, 0, 1], 0)).expect("loopback");
    let addr = listener.local_addr();
    let link = Link {
        config,
        receiver: addr,
        emulator: OnceLock::new(),
    };
    let (cancel, observer) = (Cancel::default(), Unobserved);
    let settings = SendSettings {
        scheme,
        rate_control: RateControl::Fixed { rate_bps },
        expected_loss: None,
        mtu: Some(1400),
        memory_bytes: 1 << 26,
        timeout: TIMEOUT,
    };
    let limits = ReceiveSettings {
        memory_bytes: 1 << 26,
        timeout: TIMEOUT,
    };
    let reports = thread::scope(|scope| {
        let receives = scope.spawn(|| {
            let channel = listener.accept(&psk, SETUP, None, |refusal| panic!("{refusal}"));
            let route = |sender| Ok(link.emulator(sender).addresses()[0][1]);
            let host = Host {
                route: &route,
                cancel: &cancel,
                observer: &observer,
            };
            let sender = Visitor::greet(channel.expect("channel"), &cancel).expect("a hello");
            receive(sender, to.path(), &limits, &host)
        });
        let channel = Channel::connect(&addr.into(), &psk, SETUP, || false).expect("channel");
        let route = |_| {
            let emulator = link.emulator.wait();
            scope.spawn(|| meddle(emulator));
            Ok(emulator.addresses()[0][0])
        };
        let host = Host {
            route: &route,
            cancel: &cancel,
            observer: &observer,
        };
        let sent = send(channel, source, &settings, &host);
        let received = receives.join().expect("no panic");
        [sent, received].map(|report| report.unwrap_or_else(|failure| panic!("{failure}")))
    });
    assert!(fs::read(to.path().join("file")).expect("received") == bytes);
    reports
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes)
        .map(|i| (i * 31 % 251).to_le_bytes()[0])
        .collect()
}

#[test]
fn files_cross_a_long_lossy_link_with_every_scheme() {
    let config = LinkConfig {
        delay: Duration::from_millis(10),
        loss: Loss::Iid { loss_packet: 0.01 },
        ..LinkConfig::default()
    };
    for scheme in SchemeName::EXACT {
        let reports = cross(
            config,
            SchemeChoice::Named(scheme),
            100_000_000,
            &pattern(1_500_000),
            |_| {},
        );
        let [sent, received] = reports.map(|report| serde_json::to_value(report).expect("JSON"));
        let again = sent["retransmitted_share"].as_f64().expect("a share");
        let rebuilt = received["rebuilt_chunks"].as_u64().expect("a count");
        // About one chunk in a hundred is lost, of 1072.
        match scheme {
            SchemeName::Ec(_) => assert!(rebuilt > 3, "{received}"),
            _ => assert!(rebuilt == 0 && again > 0.005, "{sent} {received}"),
        }
        let [told, measured] = [&sent["send_loss"], &received["receive_loss"]].map(|loss| {
            let share = loss["loss_chunk"].as_f64().expect("a share");
            assert!((0.0..0.05).contains(&share), "{loss}");
            loss["judged_chunks"].as_u64().expect("a count")
        });
        assert!(told <= measured && told > 300, "{told} of {measured}");
        // The peers' own measure, through the link; TCP took the short way.
        let rtt_ms = sent["rtt_ms"].as_f64().expect("a time");
        assert!((20.0..60.0).contains(&rtt_ms), "{sent}");
        assert_eq!(
            (&sent["failed_files"], &received["files"]),
            (&0.into(), &1.into())
        );
    }
}

#[test]
fn a_link_dead_for_five_seconds_is_survived() {
    const OUTAGE: Duration = Duration::from_secs(5);
    let config = LinkConfig {
        delay: Duration::from_millis(5),
        ..LinkConfig::default()
    };
    let start = Instant::now();
    cross(
        config,
        SchemeChoice::Named(SchemeName::SrNack),
        50_000_000,
        &pattern(3_000_000),
        |link| {
            thread::sleep(Duration::from_millis(150));
            link.set_down(true);
            thread::sleep(OUTAGE);
            link.set_down(false);
        },
    );
    let elapsed = start.elapsed();
    assert!(elapsed > OUTAGE, "it was over before: {elapsed:?}");
    assert!(elapsed < 4 * OUTAGE, "it took {elapsed:?} to come back");
}

/// Messages by scheme, and the last scheme that was chosen.
fn choices(sent: &Report) -> (serde_json::Map<String, serde_json::Value>, String) {
    let sent = serde_json::to_value(sent).expect("JSON");
    assert_eq!(sent["scheme"], "auto");
    let auto = &sent["auto"];
    let last = auto["last_changes"].as_array().expect("changes").last();
    let last = last.expect("a first choice")["scheme"]
        .as_str()
        .expect("a name");
    (
        auto["messages"].as_object().expect("messages").clone(),
        last.to_owned(),
    )
}

#[test]
fn auto_codes_where_a_long_path_loses_much() {
    let config = LinkConfig {
        delay: Duration::from_millis(50),
        loss: Loss::Iid { loss_packet: 0.02 },
        ..LinkConfig::default()
    };
    let reports = cross(
        config,
        SchemeChoice::Auto,
        100_000_000,
        &pattern(6_000_000),
        |_| {},
    );
    let (messages, last) = choices(&reports[0]);
    assert!(last.starts_with("ec-"), "{messages:?}");
    let line = reports[0].line();
    assert!(
        line.contains(&last) && line.contains("round trip"),
        "{line}"
    );
    let received = serde_json::to_value(&reports[1]).expect("JSON");
    assert_eq!(received["scheme"], "auto");
    assert!(received["auto"].is_null());
    assert!(received["rebuilt_chunks"].as_u64() > Some(3), "{received}");
}

#[test]
fn auto_repeats_where_nothing_is_lost() {
    let config = LinkConfig {
        delay: Duration::from_millis(50),
        ..LinkConfig::default()
    };
    let reports = cross(
        config,
        SchemeChoice::Auto,
        100_000_000,
        &pattern(6_000_000),
        |_| {},
    );
    let (messages, last) = choices(&reports[0]);
    assert_eq!(
        (messages.len(), last.as_str()),
        (1, "sr-nack"),
        "{messages:?}"
    );
}
