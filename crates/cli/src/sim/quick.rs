//! The plan of `--connections` and `--flows`.

use std::path::PathBuf;

use farwrite_units::parse::List;

use super::args::{Like, SimArgs};

pub(super) fn plan_text(args: &SimArgs) -> String {
    let quick = &args.quick;
    let paths = quick.paths.map(|paths| format!("paths = {paths}\n"));
    let paths = paths.unwrap_or_default();
    let names = quick.transport.join(",").replace(' ', "");
    let Ok(names) = names.parse::<List<String>>();
    let transports: String = names
        .iter()
        .map(|name| {
            let rules = quick.like.map_or_else(String::new, |like| like.rules(name));
            let (name, mtu) = (quoted(name), quick.mtu);
            format!("\n[transport.{name}]\nprotocol = {name}\nmtu = {mtu}\n{paths}{rules}")
        })
        .collect();
    let until = quick.until.map(humantime::format_duration);
    let until = until.map(|time| format!("until = \"{time}\"\n"));
    let buffer = quick.buffer.map(|bytes| format!("buffer = \"{bytes}\"\n"));
    let framing = quick.framing.unwrap_or_else(|| framing_bytes(quick.like));
    let switch = quick.like.map(|like| like.switch(&names, quick.mtu));
    format!(
        "seeds = {}\nfirst_seed = {}\nframing_bytes = {framing}\n{}{}\n{}\n{}{}{transports}",
        quick.seeds,
        quick.seed,
        until.unwrap_or_default(),
        buffer.unwrap_or_default(),
        file_entry("topology", args.topology.as_ref()),
        file_entry(
            "workload",
            args.connections.as_ref().or(args.flows.as_ref())
        ),
        switch.unwrap_or_default(),
    )
}

/// Bytes of a frame beyond its IP datagram. For another simulator: the bytes of all its headers, minus
/// those of the headers in a datagram here.
fn framing_bytes(like: Option<Like>) -> u32 {
    match like {
        None => 38,
        Some(Like::Ns3 | Like::Ns3Vwin) => 0,
        Some(Like::Htsim) => 20,
    }
}

impl Like {
    /// What the NICs of the other simulator do differently (lab/results/sim.md).
    fn rules(self, transport: &str) -> String {
        let preset = if self == Self::Ns3Vwin {
            "ns3-vwin"
        } else {
            "ns3"
        };
        let dcqcn =
            format!("dcqcn = {{ preset = \"{preset}\", ns3_timing = true }}\ngap_is_cnp = true\n");
        let roce = "ack_every = 1\nnak_every = \"4us\"\nretries = \"unlimited\"\n";
        let (transport, dcqcn) = match transport.split_once('@') {
            Some((transport, _)) => (transport, String::new()),
            None => (transport, dcqcn),
        };
        match (self, transport) {
            (Self::Ns3 | Self::Ns3Vwin, "roce" | "roce-lossy") => {
                format!("{roce}{dcqcn}")
            }
            (Self::Ns3 | Self::Ns3Vwin, "roce-nocc") => roce.to_owned(),
            (Self::Ns3 | Self::Ns3Vwin, "irn") => {
                format!("retries = \"unlimited\"\n{dcqcn}irn = {{ ns3_timeout = true }}\n")
            }
            (Self::Htsim, "roce-nocc") => "ack_every = 1\n".to_owned(),
            _ => String::new(),
        }
    }

    /// The switches of the other simulator, with PFC if a transport needs it. Empty if the
    /// default switches of the transport are the same.
    fn switch(self, transports: &[String], mtu: u32) -> String {
        let is_lossless = |name: &String| {
            let protocol = name.split('@').next().unwrap_or_default();
            ["roce", "roce-nocc"].contains(&protocol)
        };
        let pauses = transports.iter().any(is_lossless);
        let marks = match self {
            Self::Ns3Vwin => NS3_MARKS_BY_RATE,
            _ => NS3_MARKS,
        };
        match (self, pauses) {
            (Self::Ns3 | Self::Ns3Vwin, true) => format!(
                "\n[switch.ns3]\nbuffer = \"9MiB\"\n{marks}pfc = {{ priorities = [3], xoff = \
                 {{ alpha = 0.0625 }}, max_frame = \"{}\" }}\n",
                mtu + 60
            ),
            // ns-3 reserves 1048 bytes for each of 8 queues of 64 ports.
            (Self::Ns3 | Self::Ns3Vwin, false) => {
                format!("\n[switch.ns3]\nbuffer = \"8900608\"\n{marks}")
            }
            // Inputs pause at 15 packets with 40 bytes of headers, and resume at 12.
            (Self::Htsim, true) => format!(
                "\n[switch.htsim]\npfc = {{ priorities = [3], xoff = {{ bytes = \"{}\" }}, xon_gap \
                 = \"{}\", max_frame = \"{}\" }}\n",
                15 * (mtu + 40),
                3 * (mtu + 40),
                mtu + 80
            ),
            (Self::Htsim, false) => String::new(),
        }
    }
}

/// The marks of ns-3's scripts for 100 Gbit/s.
const NS3_MARKS: &str =
    "ecn = { kmin = \"100kB\", kmax = \"400kB\", pmax = 0.2, at = \"departure\" }\n";
/// Those of HPCC's scripts, for a port of 25 Gbit/s.
const NS3_MARKS_BY_RATE: &str = "ecn = { kmin = \"100kB\", kmax = \"400kB\", pmax = 0.2, at = \
                                 \"departure\", rate = \"25Gbit\" }\n";

/// An entry of a plan for a file.
fn file_entry(kind: &str, path: Option<&PathBuf>) -> String {
    let path = path.map(|path| std::path::absolute(path).unwrap_or(path.clone()));
    let path = path.unwrap_or_default();
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let (stem, path) = (quoted(&stem), quoted(&path.to_string_lossy()));
    format!("[{kind}.{stem}]\nfile = {path}\n")
}

/// A quoted string for TOML, which has the syntax of a JSON string.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use toml::Table;

    use super::*;

    /// A table of a plan whose results lab/results/sim.md compares with those of the other simulator.
    fn measured(plan: &str, section: &str, name: &str) -> Table {
        let plans = concat!(env!("CARGO_MANIFEST_DIR"), "/../experiment/plans");
        let plan = fs::read_to_string(format!("{plans}/{plan}.toml")).expect("a plan");
        let plan: Table = plan.parse().expect("TOML");
        plan[section][name].as_table().expect("a table").clone()
    }

    #[test]
    fn switches_and_rules_of_another_simulator_are_those_of_the_measured_plans() {
        for (like, transport, plan, name) in [
            (Like::Ns3, "roce", "ns3-dcqcn", "shared"),
            (Like::Ns3, "irn", "ns3-lossy", "lossy"),
            (Like::Htsim, "roce-nocc", "htsim-star", "packets"),
        ] {
            let ours = like.switch(&[transport.to_owned()], 1024);
            let ours: Table = ours.parse().expect("TOML");
            let (_, ours) = ours["switch"]
                .as_table()
                .and_then(|all| all.iter().next())
                .expect("one");
            assert_eq!(
                ours.as_table(),
                Some(&measured(plan, "switch", name)),
                "{plan}"
            );
        }
        for (like, transport, plan, name) in [
            (Like::Ns3, "roce-lossy", "ns3-lossy", "rules"),
            (Like::Htsim, "roce-nocc", "htsim-star", "roce-nocc"),
        ] {
            let rules = format!(
                "protocol = \"{transport}\"\nmtu = 1024\n{}",
                like.rules(transport)
            );
            let rules: Table = rules.parse().expect("TOML");
            assert_eq!(rules, measured(plan, "transport", name), "{plan}");
        }
    }
}
