//! Reading networks from TOML files.

use std::collections::BTreeMap;
use std::time::Duration;

use farwrite_units::input::at_line;
use serde::Deserialize;

use super::{Shape, Topology, TopologyError};
use crate::{Options, SwitchConfig};

/// Why a file does not describe a network.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The text is not TOML, or a field is missing, unknown or malformed. The message shows the
    /// line.
    #[error("{0}")]
    Syntax(String),
    /// The topology is invalid.
    #[error("topology: {0}")]
    Topology(#[from] TopologyError),
    /// The file names a switch that the topology does not have.
    #[error("switches.{0}: the topology has no node of this name")]
    UnknownSwitch(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default = "framing")]
    framing_bytes: u32,
    #[serde(default, deserialize_with = "reroute")]
    reroute: Option<Duration>,
    topology: Shape,
    #[serde(default)]
    switch: SwitchConfig,
    #[serde(default)]
    switches: BTreeMap<String, SwitchConfig>,
}

fn framing() -> u32 {
    Options::default().framing_bytes
}

fn reroute<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    crate::units::time(from).map(Some)
}

/// Reads a network from the text of a TOML file:
///
/// ```
/// let text = r#"
///     reroute = "10ms"                 # optional
///     framing_bytes = 38               # optional; this is the default
///
///     [topology]
///     shape = "leaf-spine"             # a variant of Shape; its fields follow
///     leaves = 4
///     spines = 2
///     hosts_per_leaf = 8
///     host_cable = { rate = "100Gbit", delay = "1us" }
///     spine_cable = { rate = "400Gbit", delay = "1us", loss = 1e-6 }
///
///     [switch]                         # fields of SwitchConfig, for all switches
///     buffer = "9MiB"
///     latency = "500ns"
///     ecn = { kmin = "100kB", kmax = "400kB", pmax = 0.2 }
///     pfc = { priorities = [3], xoff = { alpha = 0.0625 } }
///     routing = { policy = "drill", d = 2, m = 1 }
///
///     [switches.spine0]                # for one switch; it takes nothing from [switch]
///     buffer = "32MiB"
/// "#;
/// let (topology, options) = farwrite_net::read_toml(text)?;
/// assert_eq!(topology.hosts().count(), 32);
/// # Ok::<(), farwrite_net::FileError>(())
/// ```
///
/// # Errors
/// [`FileError`].
pub fn read_toml(text: &str) -> Result<(Topology, Options), FileError> {
    let file: File = toml::from_str(text).map_err(|error| {
        let start = error.span().map_or(0, |span| span.start);
        FileError::Syntax(at_line(text, start, error.message()))
    })?;
    let topology = file.topology.build()?;
    let mut exceptions = BTreeMap::new();
    for (name, config) in file.switches {
        let Some(node) = topology.find(&name) else {
            return Err(FileError::UnknownSwitch(name));
        };
        exceptions.insert(node, config);
    }
    let options = Options {
        switch: file.switch,
        exceptions,
        framing_bytes: file.framing_bytes,
        reroute: file.reroute,
    };
    Ok((topology, options))
}
