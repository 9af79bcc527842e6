//! Settings of single switches of a topology, by name.

use farwrite_net::{Options, Role, SwitchConfig, Topology};

use crate::changes::node_names;

/// The settings of a switch that differ from those of the other switches.
#[derive(Debug)]
pub(super) struct OwnSwitch {
    pub(super) name: String,
    /// The keys that the plan has.
    pub(super) keys: Vec<String>,
    /// Their values, and defaults for other keys.
    pub(super) config: SwitchConfig,
}

impl OwnSwitch {
    /// Sets the values of the keys; the others stay.
    fn apply(&self, to: &mut SwitchConfig) {
        let own = self.config.clone();
        for key in &self.keys {
            match key.as_str() {
                "buffer" => to.buffer_bytes = own.buffer_bytes,
                "alpha" => to.alpha = own.alpha,
                "latency" => to.latency = own.latency,
                "weights" => to.weights = own.weights,
                "ecn" => to.ecn = own.ecn,
                "pfc" => to.pfc.clone_from(&own.pfc),
                "trim" => to.trim = own.trim,
                "routing" => {
                    to.routing = own.routing;
                    if !self.keys.iter().any(|key| key == "balancer") {
                        to.balancer = None;
                    }
                }
                "balancer" => to.balancer.clone_from(&own.balancer),
                other => unreachable!("{other} was read as a key of a switch"),
            }
        }
    }
}

/// Applies the settings to the switches of a topology. Call this after all other settings of switches.
///
/// # Errors
/// The topology has no switch of a name.
pub(super) fn apply(
    own: &[OwnSwitch],
    topology: &Topology,
    options: &mut Options,
) -> Result<(), String> {
    for switch in own {
        let found = topology.find(&switch.name);
        let found = found.filter(|node| topology.nodes()[node.0 as usize].role == Role::Switch);
        let node = found.ok_or_else(|| {
            let switches = topology.with_role(Role::Switch);
            let names = switches.map(|node| topology.nodes()[node.0 as usize].name.as_str());
            let names = match node_names(names) {
                names if names.is_empty() => "no switches".to_owned(),
                names => names,
            };
            format!(
                "switch.{}: the topology has no switch of this name; it has {names}",
                switch.name
            )
        })?;
        let mut config = options.switch_config(node).clone();
        switch.apply(&mut config);
        let valid = config.validate();
        valid.map_err(|why| format!("switch.{}: {why}", switch.name))?;
        options.exceptions.insert(node, config);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parser names all keys.
    #[test]
    fn each_key_of_a_switch_is_applied() {
        let refused = toml::from_str::<SwitchConfig>("none = 1").unwrap_err();
        let keys: Vec<_> = refused.message().split('`').skip(3).step_by(2).collect();
        assert!(keys.len() >= 9, "{refused}");
        let own = OwnSwitch {
            name: "switch0".to_owned(),
            keys: keys.into_iter().map(str::to_owned).collect(),
            config: SwitchConfig::default(),
        };
        let mut config = SwitchConfig {
            alpha: 3.0,
            buffer_bytes: 1,
            ..SwitchConfig::default()
        };
        own.apply(&mut config);
        assert_eq!(config, own.config);
    }
}
