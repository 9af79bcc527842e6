//! Topologies from shapes and from files.

use std::time::Duration;

use crate::common::{Host, cable, frame, got, hosts, network, send};
use farwrite_net::{
    CableConfig, CableId, Change, LeafSpine, Loss, Options, Policer, Policy, Role, Shape, Spread,
    SwitchConfig, Topology, Variation, XoffThreshold, read_toml,
};

/// Returns the number of nodes by role, and the number of cables.
fn counts(topology: &Topology) -> (usize, usize, usize) {
    let switches = topology.with_role(Role::Switch).count();
    (topology.hosts().count(), switches, topology.cables().len())
}

fn site() -> LeafSpine {
    let cable = cable(100, 1000);
    LeafSpine {
        leaves: 4,
        spines: 3,
        hosts_per_leaf: 5,
        host_cable: cable,
        spine_cable: cable,
    }
}

fn all() -> [(Shape, (usize, usize, usize)); 7] {
    let c = cable(100, 1000);
    [
        (Shape::PointToPoint { cable: c }, (2, 0, 1)),
        (
            Shape::Dumbbell {
                left: 3,
                right: 2,
                host_cable: c,
                middle_cable: c,
            },
            (5, 2, 6),
        ),
        (
            Shape::Chain {
                switches: 4,
                hosts_per_switch: 2,
                host_cable: c,
                switch_cable: c,
            },
            (8, 4, 11),
        ),
        (Shape::Star { hosts: 9, cable: c }, (9, 1, 9)),
        (Shape::LeafSpine(site()), (20, 7, 32)),
        // k = 4: 16 hosts, 20 switches, 48 cables (Al-Fares et al., figure 3).
        (
            Shape::FatTree {
                k: 4,
                host_cable: c,
                pod_cable: c,
                core_cable: c,
            },
            (16, 20, 48),
        ),
        (
            Shape::Datacenters {
                sites: 3,
                site: site(),
                border_cable: c,
                long_cable: cable(400, 10_000_000),
            },
            (60, 24, 3 * (32 + 3) + 3),
        ),
    ]
}

#[test]
fn shapes_have_the_nodes_and_cables_that_they_say() {
    for (shape, want) in all() {
        assert_eq!(counts(&shape.build().unwrap()), want, "{shape:?}");
    }
}

/// A single frame from the first host to each other host takes the time of the cables on the
/// shortest path.
#[test]
fn frames_take_shortest_paths_to_every_host() {
    let hop_ns = 87 + 1000;
    let cables: [fn(usize) -> u64; 6] = [
        |_| 1,
        |host| if host < 3 { 2 } else { 3 },
        |host| 2 + host as u64 / 2,
        |_| 2,
        |host| if host < 5 { 2 } else { 4 },
        |host| match host {
            0..2 => 2,
            2..4 => 4,
            _ => 6,
        },
    ];
    for ((shape, _), cables) in all().into_iter().zip(cables) {
        let topology = shape.build().unwrap();
        let ends = hosts(&topology);
        for (host, &dst) in ends.iter().enumerate().skip(1) {
            let mut network = network(&topology, &Options::default(), 1);
            send(&mut network, 0, [frame(ends[0], dst, 0, 1000)]);
            network.run();
            assert_eq!(
                got(&network, dst)[0].0,
                cables(host) * hop_ns,
                "{shape:?}, {host}"
            );
        }
    }
}

#[test]
fn datacenters_are_joined_by_their_long_cables() {
    let [.., (shape, _)] = all();
    let topology = shape.build().unwrap();
    let ends = hosts(&topology);
    let mut network: farwrite_net::Network<Host> = network(&topology, &Options::default(), 1);
    send(&mut network, 0, [frame(ends[0], ends[59], 0, 1000)]);
    network.run();
    // Host, leaf, spine, border; the long cable, 21.64 ns at 400 Gbit/s; and the same way down.
    assert_eq!(got(&network, ends[59])[0].0, 6 * 1087 + 10_000_022);
    let names = ["site0-border", "site2-border"].map(|name| topology.find(name).unwrap());
    let long = topology.cable_between(names[0], names[1]).unwrap();
    assert_eq!(
        topology.cables()[long.0 as usize].config.delay,
        Duration::from_millis(10)
    );
}

fn check_refused(cases: &[(Shape, &str)]) {
    for (shape, want) in cases {
        let text = shape.build().unwrap_err().to_string();
        assert!(text.contains(want), "{text:?} lacks {want:?}");
    }
}

#[test]
fn impossible_shapes_are_refused_by_parameter_and_value() {
    let c = cable(100, 1000);
    let cases = [
        (Shape::Star { hosts: 0, cable: c }, "hosts = 0: 1 to 65536"),
        (
            Shape::FatTree {
                k: 5,
                host_cable: c,
                pod_cable: c,
                core_cable: c,
            },
            "k = 5: an even number",
        ),
        (
            Shape::LeafSpine(LeafSpine {
                leaves: 1 << 12,
                spines: 1 << 12,
                ..site()
            }),
            "leaves * spines = 16777216: at most 2^20",
        ),
        (
            Shape::Star {
                hosts: 40_000,
                cable: c,
            },
            "switch0 has 40000 ports; a node has at most 32768",
        ),
        (
            Shape::Datacenters {
                sites: 0,
                site: site(),
                border_cable: c,
                long_cable: c,
            },
            "sites = 0: 1 to 1024",
        ),
    ];
    check_refused(&cases);
}

/// Datacenters with too many cables or switches in all sites together are refused before they are built.
#[test]
fn datacenters_that_are_too_large_together_are_refused() {
    let c = cable(100, 1000);
    let cases = [
        (
            Shape::Datacenters {
                sites: 64,
                site: LeafSpine {
                    leaves: 300,
                    spines: 300,
                    hosts_per_leaf: 1,
                    ..site()
                },
                border_cable: c,
                long_cable: c,
            },
            "sites * leaves * spines = 5760000: at most 2^20",
        ),
        (
            Shape::Datacenters {
                sites: 1024,
                site: LeafSpine {
                    spines: 16_384,
                    ..site()
                },
                border_cable: c,
                long_cable: c,
            },
            "the topology has 16802816 nodes; a network has at most 65536",
        ),
    ];
    check_refused(&cases);
    let mut topology = Topology::new();
    let host = topology.add(Role::Host, "host0");
    topology.connect(host, host, c);
    let text = topology.validate().unwrap_err().to_string();
    assert!(text.contains("joins node 0 and node 0"), "{text}");
}

#[test]
fn a_file_says_all_that_a_program_can() {
    let (topology, options) = read_toml(
        r#"
        framing_bytes = 0
        reroute = "5ms"
        [topology]
        shape = "datacenters"
        sites = 2
        site = { leaves = 2, spines = 2, hosts_per_leaf = 2, host_cable = { rate = "100Gbit", delay = "1us" }, spine_cable = { rate = "400Gbit", delay = "500ns", loss = 1e-6 } }
        border_cable = { rate = "400Gbit", delay = "1us" }
        long_cable = { rate = "400Gbit", delay = "12ms", loss = { p_good_to_bad = 1e-5, p_bad_to_good = 0.3, loss_good = 0.0, loss_bad = 0.5 } }
        [switch]
        buffer = "16MiB"
        alpha = 2.0
        latency = "600ns"
        weights = [1, 1, 2, 0, 0, 0, 0, 0]
        ecn = { kmin = "100kB", kmax = "400kB", pmax = 0.2, at = "arrival" }
        pfc = { priorities = [3, 4], xoff = { bytes = "30kB" }, headroom = "50kB" }
        trim = { queue = "36kB", priority = 6 }
        routing = { policy = "flowlet", gap = "50us" }
        [switches.site1-border]
        buffer = "64MiB"
        "#,
    )
    .unwrap();
    assert_eq!(counts(&topology), (8, 10, 2 * (4 + 4 + 2) + 1));
    assert_eq!(
        (options.framing_bytes, options.reroute),
        (0, Some(Duration::from_millis(5)))
    );
    let switch = &options.switch;
    assert_eq!(
        (switch.buffer_bytes, switch.latency),
        (16 << 20, Duration::from_nanos(600))
    );
    assert_eq!(switch.ecn.unwrap().kmax_bytes, 400_000);
    assert_eq!(
        switch.pfc.as_ref().unwrap().xoff,
        XoffThreshold::Bytes(30_000)
    );
    assert_eq!(switch.pfc.as_ref().unwrap().headroom_bytes, Some(50_000));
    let gap = Duration::from_micros(50);
    assert_eq!(switch.routing, Policy::Flowlet { gap, flows: 65_536 });
    let border = topology.find("site1-border").unwrap();
    let want = SwitchConfig {
        buffer_bytes: 64 << 20,
        ..SwitchConfig::default()
    };
    assert_eq!(options.exceptions[&border], want);
    let lossy = |config: &CableConfig| matches!(config.loss, Loss::Markov { .. });
    assert_eq!(
        topology
            .cables()
            .iter()
            .filter(|cable| lossy(&cable.config))
            .count(),
        1
    );
    network(&topology, &options, 1);
}

#[test]
fn losses_in_bursts_have_a_mean_and_a_length_or_their_states() {
    let loss = |text: &str| {
        let cable = format!(
            "[topology]\nshape = \"point-to-point\"\n\
             cable = {{ rate = \"1Gbit\", delay = \"1us\", loss = {text} }}\n"
        );
        read_toml(&cable).map(|(topology, _)| topology.cables()[0].config.loss)
    };
    let in_bursts = Loss::in_bursts(0.01, 20.0);
    assert_eq!(
        loss("{ loss_packet = 0.01, burst = 20 }").unwrap(),
        in_bursts
    );
    // Two of three frames are lost, with three digits: the mean burst is that of 0.667.
    let rounded = loss("{ loss_packet = 0.667, burst = 2 }").unwrap();
    assert_eq!(rounded, Loss::in_bursts(0.667, 0.667 / (1.0 - 0.667)));
    let time = Duration::from_millis(2);
    let timed = Loss::in_timed_bursts(0.01, time);
    let two_ms = loss("{ loss_packet = 0.01, burst = \"2ms\" }").unwrap();
    assert_eq!(two_ms, timed);
    let states = "{ mean_good = \"198ms\", mean_bad = \"2ms\", loss_good = 0, loss_bad = 1 }";
    assert_eq!(loss(states).unwrap(), timed);
    for text in [
        "{ loss_packet = 0.01 }",
        "{ loss_packet = 0.01, burst = 0 }",
        "{ loss_packet = 0.01, burst = \"2GB\" }",
        "{ loss_packet = 1.5, burst = 20 }",
        "{ loss_packet = 0.9, burst = 8.9 }",
        "{ mean_good = \"0s\", mean_bad = \"2ms\", loss_good = 0, loss_bad = 1 }",
    ] {
        let told = match loss(text) {
            Ok(_) => panic!("{text} is accepted"),
            Err(error) => error.to_string(),
        };
        assert!(told.contains("loss"), "{told}");
    }
}

/// A cable with these keys.
fn cable_with(text: &str) -> Result<CableConfig, String> {
    let cable = format!(
        "[topology]\nshape = \"point-to-point\"\n\
         cable = {{ rate = \"1Gbit\", delay = \"1us\", {text} }}\n"
    );
    let read = read_toml(&cable);
    read.map(|(topology, _)| topology.cables()[0].config)
        .map_err(|error| error.to_string())
}

#[test]
fn cables_vary_and_police_as_the_file_says() {
    let ms = Duration::from_millis;
    for (text, spread, every, overtakes) in [
        (
            "{ uniform = \"10ms\", every = \"30ms\" }",
            Spread::Uniform { most: ms(10) },
            ms(30),
            false,
        ),
        (
            "{ normal = \"3ms\", most = \"10ms\", overtakes = true }",
            Spread::Normal {
                deviation: ms(3),
                most: ms(10),
            },
            ms(0),
            true,
        ),
        (
            "{ spikes = 0.05, most = \"20ms\", every = \"10ms\" }",
            Spread::Spikes {
                share: 0.05,
                most: ms(20),
            },
            ms(10),
            false,
        ),
    ] {
        let want = Variation {
            spread,
            every,
            overtakes,
        };
        assert_eq!(
            cable_with(&format!("variation = {text}"))
                .unwrap()
                .variation,
            want
        );
    }
    let policer = "policer = { rate = \"10Mbit\", burst = \"24kB\" }";
    let want = Policer {
        rate_bps: 10_000_000,
        burst_bytes: 24_000,
    };
    assert_eq!(cable_with(policer).unwrap().policer, Some(want));
}

#[test]
fn variations_and_policers_that_cannot_be_are_refused() {
    for (text, want) in [
        (
            "variation = \"10ms\"",
            "uniform = \"10ms\", every = \"30ms\"",
        ),
        (
            "variation = { uniform = \"10ms\", slot = \"1ms\" }",
            "uniform = \"10ms\"",
        ),
        (
            "variation = { spikes = 1.5, most = \"1ms\" }",
            "variation.share = 1.5",
        ),
        (
            "policer = \"10Mbit\"",
            "rate = \"10Mbit\", burst = \"24kB\"",
        ),
        ("policer = { rate = \"10Mbit\" }", "burst"),
    ] {
        let told = cable_with(text).expect_err(text);
        assert!(told.contains(want), "{told}");
    }
}

#[test]
fn a_wrong_file_is_refused_with_its_line() {
    let star =
        "[topology]\nshape = \"star\"\nhosts = 2\ncable = { rate = \"1Gbit\", delay = \"1us\" }\n";
    assert!(read_toml(star).is_ok());
    let cases = [
        (star.replace("star", "ring"), "unknown variant `ring`"),
        (star.replace("hosts = 2", "hosts = -2"), "invalid value"),
        (star.replace("1Gbit", "1GB"), "write it like 2Gbit"),
        (star.replace("1us", "soon"), "\"soon\": not a time"),
        (star.replace("hosts", "guests"), "guests"),
        (
            star.replace("hosts = 2", "hosts = 0"),
            "topology: hosts = 0: 1 to 65536",
        ),
        (
            format!("{star}[switch]\nbufer = \"1MiB\"\n"),
            "unknown field `bufer`",
        ),
        (
            format!("{star}[switches.spine7]\nbuffer = \"1MiB\"\n"),
            "switches.spine7: the topology has no",
        ),
        (
            star.replace("delay = \"1us\"", "delay = \"1us\", loss = \"much\""),
            "a loss is a probability",
        ),
    ];
    for (text, want) in cases {
        let error = read_toml(&text).expect_err(want).to_string();
        assert!(error.contains(want), "{error:?} lacks {want:?}");
    }
}

const LIST: &str = r#"
[topology]
shape = "list"
hosts = ["ann", "ben", "cid"]
switches = ["east", "west"]
cables = [
    { ends = ["ann", "east"], rate = "100Gbit", delay = "1us" },
    { ends = ["ben", "east"], rate = "25Gbit", delay = "1us", loss = 1e-6 },
    { ends = ["west", "cid"], rate = "100Gbit", delay = "2us" },
    { ends = ["east", "west"], rate = "40Gbit", delay = "5ms" },
]
[switches.west]
buffer = "64MiB"
"#;

#[test]
fn a_list_has_its_nodes_and_cables() {
    let (topology, options) = read_toml(LIST).unwrap();
    assert_eq!(counts(&topology), (3, 2, 4));
    let names = ["ann", "ben", "cid", "east", "west"].map(|name| topology.find(name).unwrap());
    assert_eq!(hosts(&topology), names[..3]);
    assert_eq!(options.exceptions[&names[4]].buffer_bytes, 64 << 20);
    let second = topology.cables()[1].config;
    assert_eq!(second.rate_bps, 25_000_000_000);
    assert_eq!(second.loss, Loss::Iid { loss_packet: 1e-6 });
    let mut network = network(&topology, &options, 1);
    send(&mut network, 0, [frame(names[0], names[2], 0, 1000)]);
    network.run();
    // A frame of 1082 bytes: 86.56 ns at 100 Gbit/s, 216.4 ns at 40.
    let want_ns = 1000 + 87 + 5_000_000 + 217 + 2000 + 87;
    assert_eq!(got(&network, names[2])[0].0, want_ns);
}

/// A cable has its rate from the first end to the second and `back_rate` the other way, also after a change, and on
/// both sides of a box.
#[test]
fn a_cable_may_have_another_rate_back() {
    let two_rates = LIST.replace("\"40Gbit\"", "\"40Gbit\", back_rate = \"10Gbit\"");
    let (mut topology, options) = read_toml(&two_rates).unwrap();
    let [ann, cid, east] = ["ann", "cid", "east"].map(|name| topology.find(name).unwrap());
    let long = CableId(3);
    let changed = CableConfig {
        back_rate_bps: Some(20_000_000_000),
        ..topology.cables()[3].config
    };
    // A frame of 1082 bytes: 86.56 ns at 100 Gbit/s, 216.4 ns at 40, 865.6 at 10 and 432.8 at 20.
    for has_box in [false, true] {
        if has_box {
            topology.insert_box(long, east, "box");
        }
        let mut network = network(&topology, &options, 1);
        network
            .plan(20_000_000, long, Change::Config(changed))
            .unwrap();
        for (at_ns, [src, dst]) in [0, 30_000_000].into_iter().zip([[cid, ann]; 2]) {
            send(&mut network, at_ns, [frame(src, dst, 0, 1000)]);
        }
        send(&mut network, 0, [frame(ann, cid, 0, 1000)]);
        network.run();
        let rest_ns = 2 * 87 + 3000 + 5_000_000;
        let times = |host| got(&network, host).iter().map(|(at_ns, _)| *at_ns);
        // The box sends and receives at the rates of its cable; its own short one does not change.
        let there_ns = if has_box { 2 * 217 } else { 217 };
        let back_ns = if has_box {
            [2 * 866, 433 + 866]
        } else {
            [866, 433]
        };
        assert_eq!(Vec::from_iter(times(cid)), [rest_ns + there_ns]);
        let back = [rest_ns + back_ns[0], 30_000_000 + rest_ns + back_ns[1]];
        assert_eq!(Vec::from_iter(times(ann)), back);
    }
    let wrong = two_rates.replace("10Gbit", "none");
    assert!(
        read_toml(&wrong)
            .unwrap_err()
            .to_string()
            .contains("back_rate")
    );
}

#[test]
fn a_wrong_list_is_refused_by_name() {
    let ends = r#"ends = ["west", "cid"]"#;
    let cases = [
        (
            LIST.replace(ends, r#"ends = ["wset", "cid"]"#),
            "cables[2]: ends: \"wset\" is not in hosts or switches; add it there",
        ),
        (
            LIST.replace(ends, r#"ends = ["cid", "cid"]"#),
            "cables[2]: ends: \"cid\" is at both ends",
        ),
        (
            LIST.replace(ends, r#"ends = ["west", "ann"]"#),
            "host \"ann\" has 2 cables; a host has one cable",
        ),
        (
            LIST.replace(ends, r#"ends = ["west", "east"]"#),
            "host \"cid\" has 0 cables; a host has one cable",
        ),
        (
            LIST.replace(
                "switches = [\"east\", \"west\"]",
                "switches = [\"east\", \"ben\"]",
            ),
            "the name \"ben\" is in hosts and switches more than once",
        ),
        (
            LIST.replace(ends, r#"ends = ["west"]"#),
            "invalid length 1, expected an array of length 2",
        ),
        (
            LIST.replace("rate = \"40Gbit\", ", ""),
            "missing field `rate`",
        ),
        (
            LIST.replace("delay = \"2us\"", "dalay = \"2us\""),
            "unknown field `dalay`",
        ),
        (LIST.replace("2us", "soon"), "delay: \"soon\": not a time"),
        (
            LIST.replace("hosts = [\"ann\", \"ben\", \"cid\"]", ""),
            "missing field `hosts`",
        ),
    ];
    for (text, want) in cases {
        let error = read_toml(&text).expect_err(want).to_string();
        assert!(error.contains(want), "{error:?} lacks {want:?}");
    }
}
