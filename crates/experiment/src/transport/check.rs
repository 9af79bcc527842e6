//! Checks of a transport: values out of range, settings that the protocol does not have, and flows that
//! it cannot carry.

use farwrite::RateControlName;
use farwrite_rc::{RdmaTransport, Recovery};

use super::name::{ControlName, DCTCP, HPCC, NicControlName, NicName, Protocol, TIMELY, XpName};
use super::{
    ENDPOINT_OFFSET_BITS, EndpointTransport, MOST_PATHS, Transport, TransportError,
    TransportSettings,
};
use crate::parameters::{Swift, Timely};
use crate::{Flow, Start};

/// Longest message of a NIC (IBTA 9.7).
const MAX_XP_BYTES: u64 = 1 << 31;

impl TransportSettings {
    /// Checks the values that have the same range with every protocol, and that the protocol has the
    /// settings.
    pub(super) fn check(&self, protocol: &Protocol) -> Result<(), TransportError> {
        if self.priority > 7 {
            return Err(TransportError::Priority(self.priority));
        }
        if let Some(paths) = self.paths.filter(|paths| !(1..=MOST_PATHS).contains(paths)) {
            return Err(TransportError::Paths(paths));
        }
        let control = match protocol {
            Protocol::Nic(nic) => nic.control.as_ref(),
            Protocol::Xp(_) | Protocol::Endpoint(..) => None,
        };
        let of_controls = self.of_nic_controls();
        let of_controls = of_controls.map(|(key, set, of)| (key, set && control != Some(&of)));
        let is_xp = matches!(protocol, Protocol::Xp(_));
        let of_xp = [
            ("queue_pair", self.queue_pair.is_some() && !is_xp),
            ("complete_by", self.complete_by.is_some() && !is_xp),
        ];
        let foreign = self.foreign_settings(protocol).into_iter();
        let mut foreign = foreign.chain(of_controls).chain(of_xp);
        if let Some((key, _)) = foreign.find(|(_, is_set)| *is_set) {
            let protocol = self.protocol.clone();
            return Err(TransportError::NoSetting { key, protocol });
        }
        let swift = self.swift.as_ref().and_then(Swift::contradiction);
        let irn = self.irn.as_ref();
        let irn = irn.and_then(|irn| irn.contradiction(self.timeout));
        let timely = self.timely.as_ref().and_then(Timely::contradiction);
        (swift.or(irn).or(timely)).map_or(Ok(()), |why| Err(TransportError::Contradiction(why)))
    }

    /// The settings that the protocol does not have, and whether each is set.
    fn foreign_settings(&self, protocol: &Protocol) -> Vec<(&'static str, bool)> {
        match protocol {
            Protocol::Nic(nic) => [
                ("rate", self.rate.is_some()),
                ("packets_per_chunk", self.packets_per_chunk.is_some()),
                ("posted", self.posted),
                ("deadline", self.deadline.is_some()),
                ("port", self.port.is_some()),
                ("dcqcn", self.dcqcn.is_some() && !nic.has_dcqcn()),
                ("gap_is_cnp", self.gap_is_cnp.is_some() && !nic.has_dcqcn()),
                (
                    "paths",
                    self.paths.is_some() && !bears_reordering(nic.recovery()),
                ),
                ("swift", self.swift.is_some() && !nic.has_swift()),
                ("irn", self.irn.is_some() && !has_irn(nic)),
                ("timeout", self.timeout.is_some() && nic.repair.is_some()),
                (
                    "eqds",
                    self.eqds.is_some() && nic.model != RdmaTransport::Eqds,
                ),
                (
                    "ack_every",
                    self.ack_every.is_some() && nic.recovery() != Recovery::GoBackN,
                ),
                (
                    "nak_every",
                    self.nak_every.is_some() && nic.recovery() != Recovery::GoBackN,
                ),
            ]
            .to_vec(),
            Protocol::Xp(name) => [
                ("rate", self.rate.is_some()),
                ("packets_per_chunk", self.packets_per_chunk.is_some()),
                ("posted", self.posted),
                ("port", self.port.is_some()),
                ("dcqcn", self.dcqcn.is_some()),
                ("swift", self.swift.is_some()),
                ("eqds", self.eqds.is_some() && *name != XpName::Eqds),
                ("irn", self.irn.is_some()),
            ]
            .into_iter()
            .chain(self.of_reliable_nics())
            .collect(),
            Protocol::Endpoint(scheme, control) => [
                (
                    "rate",
                    self.rate.is_some() && *control != ControlName::DEFAULT,
                ),
                ("deadline", self.deadline.is_some() && scheme.is_exact()),
                (
                    "dcqcn",
                    self.dcqcn.is_some() && *control != ControlName::Of(RateControlName::Dcqcn),
                ),
                (
                    "swift",
                    self.swift.is_some() && *control != ControlName::Of(RateControlName::Swift),
                ),
                (
                    "eqds",
                    self.eqds.is_some() && *control != ControlName::Of(RateControlName::Eqds),
                ),
                ("irn", self.irn.is_some()),
            ]
            .into_iter()
            .chain(self.of_reliable_nics())
            .collect(),
        }
    }

    /// The settings of controllers that only NICs with reliable connections have, and whether each is set.
    fn of_nic_controls(&self) -> [(&'static str, bool, NicControlName); 3] {
        [
            (DCTCP, self.dctcp.is_some(), NicControlName::Dctcp),
            (TIMELY, self.timely.is_some(), NicControlName::Timely),
            (HPCC, self.hpcc.is_some(), NicControlName::Hpcc),
        ]
    }

    /// The settings that only NICs with reliable connections have, and whether each is set.
    fn of_reliable_nics(&self) -> [(&'static str, bool); 7] {
        [
            ("window", self.window.is_some()),
            ("ack_every", self.ack_every.is_some()),
            ("timeout", self.timeout.is_some()),
            ("retries", self.retries.is_some()),
            ("nak_every", self.nak_every.is_some()),
            ("gap_is_cnp", self.gap_is_cnp.is_some()),
            ("paths", self.paths.is_some()),
        ]
    }
}

/// Whether a gap alone is no loss for a NIC, so that packets of a flow may take several paths.
fn bears_reordering(recovery: Recovery) -> bool {
    matches!(recovery, Recovery::Trimming | Recovery::Rack { .. })
}

impl Transport {
    /// Checks the values of the protocol.
    pub(super) fn check(&self) -> Result<(), TransportError> {
        match self {
            Self::Nic(nic) => Ok(nic.queue_pair(2, &self.path(0)).validate()?),
            Self::Endpoint(endpoint) => endpoint.check(),
            Self::Xp(xp) => xp.check(&self.path(0)),
        }
    }

    /// Checks that the transport can carry all flows of a workload. NICs carry any, but XP carries whole messages
    /// only.
    ///
    /// # Errors
    /// [`TransportError`] names the first flow that it cannot carry.
    pub(crate) fn check_flows(&self, flows: &[Flow]) -> Result<(), TransportError> {
        let most = match self {
            Self::Nic(_) => return Ok(()),
            Self::Endpoint(endpoint) => u64::from(endpoint.mtu) << ENDPOINT_OFFSET_BITS,
            Self::Xp(_) => MAX_XP_BYTES,
        };
        for (number, flow) in flows.iter().enumerate() {
            if flow.is_endless() {
                return Err(TransportError::EndlessFlow { flow: number });
            }
            if let Self::Endpoint(endpoint) = self {
                endpoint.check_flow(number, flow)?;
            }
            if flow.bytes > most {
                return Err(TransportError::FlowLength {
                    flow: number,
                    bytes: flow.bytes,
                    most,
                });
            }
        }
        Ok(())
    }
}

impl EndpointTransport {
    /// Checks the priority and the start of a flow.
    fn check_flow(&self, number: usize, flow: &Flow) -> Result<(), TransportError> {
        if let Some(priority) = flow.priority.filter(|own| *own != self.priority) {
            return Err(TransportError::FlowPriority {
                flow: number,
                priority,
                of_transport: self.priority,
            });
        }
        if self.posted && !matches!(flow.start, Start::At(_)) {
            return Err(TransportError::PostedFlow { flow: number });
        }
        Ok(())
    }
}

/// Whether a NIC repairs losses as IRN does.
fn has_irn(nic: &NicName) -> bool {
    let is_irn = matches!(nic.model, RdmaTransport::Irn | RdmaTransport::Srnic);
    is_irn && nic.repair.is_none()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use farwrite::SchemeName;

    use super::super::name::{ENDPOINT, renamed};
    use super::super::names;
    use super::*;
    use crate::parameters::Dcqcn;

    #[test]
    fn every_protocol_has_valid_defaults() {
        for protocol in RdmaTransport::ALL {
            let transport = Transport::new(protocol.name()).unwrap();
            assert_eq!(transport.protocol(), protocol.name());
        }
        for scheme in SchemeName::EXACT {
            Transport::new(&format!("{ENDPOINT}{scheme}")).unwrap();
        }
        for control in ["known", "adaptive", "fixed", "dcqcn", "swift", "eqds"] {
            let transport = Transport::new(&format!("{ENDPOINT}sr-nack@{control}")).unwrap();
            let name = match control {
                "adaptive" => "farwrite-sr-nack".to_owned(),
                _ => format!("farwrite-sr-nack@{control}"),
            };
            assert_eq!(transport.protocol(), name);
            let old = format!("{ENDPOINT}sr-nack+{control}");
            if control != "adaptive" {
                assert_eq!(renamed(&old), Some(name));
                assert_eq!(Transport::new(&old), Ok(transport.clone()));
            }
            let plain = transport.switch(&[3], 38);
            let marks = control == "dcqcn";
            assert_eq!(
                (plain.ecn.is_some(), transport.lacks(&plain)),
                (marks, None)
            );
        }
        for scheme in SchemeName::BOUNDED {
            let mut settings = TransportSettings::new(&format!("{ENDPOINT}{scheme}"));
            assert_eq!(renamed(&settings.protocol), None);
            let missing = settings.transport().unwrap_err().to_string();
            assert!(missing.contains("needs a deadline"), "{missing}");
            settings.deadline = Some(Duration::from_millis(3));
            settings.transport().unwrap();
        }
    }

    #[test]
    fn unknown_names_and_values_out_of_range_are_named() {
        assert!(Transport::new("farwrite-best-effort").is_err());
        let unknown = Transport::new("tcp").unwrap_err().to_string();
        assert_eq!(
            unknown,
            format!("protocol = \"tcp\": choose one of {}", names())
        );
        let wrong = TransportSettings {
            mtu: 1500,
            ..TransportSettings::new("roce")
        };
        let wrong = wrong.transport().unwrap_err().to_string();
        assert!(wrong.starts_with("mtu = 1500: "), "{wrong}");
        let wrong = TransportSettings {
            dcqcn: Some(Dcqcn::default()),
            ..TransportSettings::new("eqds")
        };
        let wrong = wrong.transport().unwrap_err().to_string();
        assert!(
            wrong.starts_with("dcqcn: eqds has no such setting"),
            "{wrong}"
        );
        let wrong = TransportSettings {
            window: Some(7),
            ..TransportSettings::new("farwrite-ec-mds:32,8")
        };
        let wrong = wrong.transport().unwrap_err().to_string();
        assert!(
            wrong.starts_with("window: farwrite-ec-mds:32,8 has no such"),
            "{wrong}"
        );
        let wrong = TransportSettings {
            mtu: 1501,
            ..TransportSettings::new("farwrite-sr-nack")
        };
        let wrong = wrong.transport().unwrap_err().to_string();
        assert!(wrong.contains("1501"), "{wrong}");
        let wrong = TransportSettings {
            rate: Some(1_000_000),
            ..TransportSettings::new("farwrite-best-effort+sr@swift")
        };
        let wrong = wrong.transport().unwrap_err().to_string();
        assert!(
            wrong.starts_with("rate: farwrite-best-effort+sr@swift has no such"),
            "{wrong}"
        );
    }

    #[test]
    fn names_of_endpoints_that_are_wrong_are_explained() {
        for unknown in [
            "farwrite-",
            "farwrite-tcp",
            "farwrite-+dcqcn",
            "farwrite-@dcqcn",
            "farwrite-sr-nack+tcp",
            "farwrite-sr-nack+dcqcn+swift",
            "farwrite-sr-nack@dcqcn@swift",
            "farwrite-sr-nack@Swift",
        ] {
            let wrong = Transport::new(unknown).unwrap_err().to_string();
            let begins = format!("protocol = {unknown:?}: of endpoints, there are farwrite-sr-rto");
            assert!(wrong.starts_with(&begins), "{wrong}");
            assert!(
                wrong.ends_with(
                    "one of @known, @adaptive, @fixed, @dcqcn, @swift, @eqds may follow"
                ),
                "{wrong}"
            );
        }
        for (code, why) in [
            ("ec-mds:0,8", "(0,8): a code has at least 1 data chunk"),
            ("ec-mds:0,8+dcqcn", "(0,8): a code has at least 1 data"),
            ("best-effort+ec-mds:32,0", "(32,0): a code has at least"),
            ("ec-xor:4,8", "XOR with 8 parity chunks for 4 data chunks"),
            ("ec-mds:200,100", "(200,100) has too many chunks"),
            ("ec-mds:a,8", "\"a\" is not a number of chunks"),
            (
                "ec-mds:32",
                "\"ec-mds:32\" is not a code; codes are written",
            ),
            ("ec-lt:32,8", "\"ec-lt:32,8\" is not a code"),
        ] {
            let name = format!("farwrite-{code}");
            let wrong = Transport::new(&name).unwrap_err().to_string();
            let begins = format!("protocol = {name:?}: {why}");
            assert!(wrong.starts_with(&begins), "{wrong}");
        }
    }
}
