//! Settings of single switches.

use std::time::Duration;

use farwrite_experiment::plan::{CaseParts, Plan, sweep};
use farwrite_net::SwitchConfig;

use crate::plans::FIRST;

const LIST: &str = r#"shape = "list"
hosts = ["ann", "ben"]
switches = ["switch0", "switch1"]
cables = [
    { ends = ["ann", "switch0"], rate = "100Gbit", delay = "1us" },
    { ends = ["switch0", "switch1"], rate = "100Gbit", delay = "1us" },
    { ends = ["ben", "switch1"], rate = "100Gbit", delay = "1us" },
]"#;
const CHAIN: &str = r#"shape = "chain"
switches = 2
hosts_per_switch = 1
host_cable = { rate = "100Gbit", delay = "1us" }
switch_cable = { rate = "100Gbit", delay = "1us" }"#;
const HTSIM: &str = "Nodes 4\nTiers 2\nPodsize 4\nTier 0\nDownlink_speed_Gbps 100\nRadix_Down 2\nRadix_Up 1\n\
                     Oversubscribed 2\nDownlink_Latency_ns 1000\nSwitch_Latency_ns 300\nTier 1\n\
                     Downlink_speed_Gbps 100\nRadix_Down 2\nDownlink_Latency_ns 1000\n";
const NS3: &str = "4 2 3\n0 1\n0 2 100Gbps 1000ns 0\n0 1 100Gbps 1000ns 0\n1 3 100Gbps 1000ns 0\n";

fn files(name: &str) -> Result<String, String> {
    match name {
        "net.toml" => Ok(format!(
            "[topology]\n{CHAIN}\n[switches.switch0]\nbuffer = \"5MB\"\nlatency = \"7ns\"\n"
        )),
        "tree.topo" => Ok(HTSIM.to_owned()),
        "nodes.txt" => Ok(NS3.to_owned()),
        _ => Err(format!("{name}: no such file")),
    }
}

/// The parts of the first run of a plan.
fn parts(topology: &str, more: &str) -> Result<CaseParts, String> {
    let text = format!(
        "transport = [\"irn\"]\n[topology.one]\n{topology}\n\
         [workload.all]\npattern = \"permutation\"\nsize = \"9kB\"\n{more}"
    );
    let plan = Plan::read(&text, &files).map_err(|why| why.to_string())?;
    Ok(plan.parts(&plan.cases()[0]).unwrap())
}

fn of_switch(parts: &CaseParts, name: &str) -> SwitchConfig {
    let node = parts.topology.find(name).unwrap();
    parts.options.switch_config(node).clone()
}

/// What a table leaves out stays what it is without the table: from the plan, from the file, or from what the
/// transport needs.
#[test]
fn a_switch_of_any_topology_may_have_settings_of_its_own() {
    let own = "\n[topology.one.switch.NAME]\nbuffer = \"1MB\"\n\
               ecn = { kmin = \"1kB\", kmax = \"2kB\", pmax = 1 }\n";
    let of_all = "[switch.all]\nbuffer = \"3MB\"\nlatency = \"2us\"\n";
    for (topology, name, other) in [
        (CHAIN, "switch0", "switch1"),
        (LIST, "switch1", "switch0"),
        ("file = \"net.toml\"", "switch0", "switch1"),
        ("file = \"tree.topo\"", "leaf0", "leaf1"),
        ("file = \"nodes.txt\"", "switch1", "switch0"),
    ] {
        for more in ["", of_all] {
            let with = format!("{topology}{}", own.replace("NAME", name));
            let [with, without] = [with.as_str(), topology].map(|text| parts(text, more).unwrap());
            let (changed, before) = (of_switch(&with, name), of_switch(&without, name));
            assert_eq!(changed.buffer_bytes, 1_000_000, "{topology} {more}");
            assert_eq!(changed.ecn.unwrap().kmin_bytes, 1000);
            let rest = SwitchConfig {
                buffer_bytes: before.buffer_bytes,
                ecn: before.ecn,
                ..changed
            };
            assert_eq!(rest, before, "{topology} {more}");
            assert_eq!(of_switch(&with, other), of_switch(&without, other));
        }
    }
    let latency = |topology: &str| of_switch(&parts(topology, "").unwrap(), "switch0").latency;
    let net = "file = \"net.toml\"\n[topology.one.switch.switch0]\nbuffer = \"1MB\"";
    assert_eq!(latency(net), Duration::from_nanos(7));
}

#[test]
fn a_small_buffer_of_one_switch_drops() {
    let dropped = |own: &str| {
        let text = FIRST.replace("[workload", &format!("{own}[workload"));
        let text = format!("transport = [\"roce-lossy\"]\n{text}");
        let outcomes = sweep(&Plan::read(&text, &files).unwrap(), 1, None, |_| true);
        outcomes[0].outcome.as_ref().unwrap().totals.all_dropped()
    };
    assert_eq!(dropped(""), 0);
    assert!(dropped("[topology.rack.switch.switch0]\nbuffer = \"40kB\"\n") > 0);
}

/// The flows and switches of a public simulation, whose long cable needs more headroom than most switches have
/// buffers.
#[test]
fn flows_between_two_datacenters_take_the_published_times() {
    let text = include_str!("../../plans/longhaulcc.toml");
    let outcomes = sweep(&Plan::read(text, &files).unwrap(), 1, None, |_| true);
    let outcome = outcomes[0].outcome.as_ref().unwrap();
    let times = outcome
        .flows
        .iter()
        .map(|flow| flow.time_ns().unwrap() as f64 / 1e3);
    let times: Vec<f64> = times.collect();
    let mean = times.iter().sum::<f64>() / 6.0;
    let most = times.iter().copied().fold(0.0, f64::max);
    for (ours, theirs) in [(mean, 1039.6), (most, 1042.4)] {
        assert!((ours / theirs - 1.0).abs() < 0.01, "{ours} and {theirs} us");
    }
    let without = text.replace("buffer = \"41MiB\"", "buffer = \"10MiB\"");
    let refused = Plan::read(&without, &files).unwrap_err().to_string();
    assert!(
        refused.contains("of headroom for all ports leave nothing"),
        "{refused}"
    );
}

#[test]
fn wrong_settings_of_a_switch_are_refused_with_its_name() {
    for (own, told) in [
        (
            "[topology.one.switch.spine9]\nbuffer = \"1MB\"",
            "topology.one: switch.spine9: the topology has no switch of this name; it has switch0",
        ),
        (
            "[topology.one.switch.host0]\nbuffer = \"1MB\"",
            "topology.one: switch.host0: the topology has no switch of this name",
        ),
        (
            "[topology.one.switch.switch0]\nbufer = \"1MB\"",
            "topology.one: switch.switch0: bufer = \"1MB\": unknown field `bufer`",
        ),
        (
            "[topology.one.switch.switch0]\nalpha = 0.0",
            "topology.one: switch.switch0: switch alpha = 0: a number above 0",
        ),
        (
            "[topology.one.switch.switch0]\nbuffer = \"1kB\"",
            "the buffer of switch0 has 1000 bytes beside its headroom",
        ),
        (
            "switch = 4",
            "topology.one: switch = 4: write [topology.NAME.switch.SWITCH]",
        ),
        (
            "[topology.one.switch]\nbuffer = \"1MB\"",
            "topology.one: switch.buffer = \"1MB\": write [topology.NAME.switch.SWITCH]",
        ),
    ] {
        let refused = parts(&format!("{CHAIN}\n{own}"), "").unwrap_err();
        assert!(refused.contains(told), "{told:?} is not in {refused:?}");
    }
}
