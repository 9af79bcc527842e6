//! Checks of a transport: values out of range, settings that the protocol does not have, and flows that
//! it cannot carry.

use farwrite::QpConfig as SdrConfig;
use farwrite_rc::{RdmaTransport, Recovery};

use super::{
    ENDPOINT_OFFSET_BITS, EndpointControl, MOST_PATHS, Protocol, Transport, TransportError,
};
use crate::parameters::Swift;
use crate::{Flow, Start};

impl Transport {
    /// Checks the values.
    ///
    /// # Errors
    /// [`TransportError`].
    pub fn validate(&self) -> Result<(), TransportError> {
        if self.priority > 7 {
            return Err(TransportError::Priority(self.priority));
        }
        if let Some(paths) = self.paths.filter(|paths| !(1..=MOST_PATHS).contains(paths)) {
            return Err(TransportError::Paths(paths));
        }
        let protocol = self.protocol()?;
        let mut foreign = self.foreign_settings(protocol).into_iter();
        if let Some((key, _)) = foreign.find(|(_, is_set)| *is_set) {
            let protocol = self.protocol.clone();
            return Err(TransportError::NoSetting { key, protocol });
        }
        let swift = self.swift.as_ref().and_then(Swift::contradiction);
        let irn = self.irn.as_ref();
        let irn = irn.and_then(|irn| irn.contradiction(self.timeout));
        if let Some(why) = swift.or(irn) {
            return Err(TransportError::Contradiction(why));
        }
        match protocol {
            Protocol::Nic(nic) => Ok(self.queue_pair(nic, 2, &self.path(0)).validate()?),
            Protocol::Endpoint(scheme, _) => {
                if !scheme.is_exact() && self.deadline.is_none() {
                    let why = format!("{}: needs a deadline, such as \"3ms\"", self.protocol);
                    return Err(TransportError::Endpoint(why));
                }
                let config = SdrConfig {
                    mtu: self.mtu,
                    max_message_bytes: 1,
                    ..SdrConfig::default()
                };
                let checked = config.validate();
                checked.map_err(|why| TransportError::Endpoint(why.to_string()))?;
                Ok(())
            }
        }
    }

    /// The settings that the protocol does not have, and whether each is set.
    fn foreign_settings(&self, protocol: Protocol) -> Vec<(&'static str, bool)> {
        match protocol {
            Protocol::Nic(nic) => [
                ("rate", self.rate.is_some()),
                ("posted", self.posted),
                ("deadline", self.deadline.is_some()),
                ("port", self.port.is_some()),
                ("dcqcn", self.dcqcn.is_some() && !nic.has_dcqcn()),
                ("gap_is_cnp", self.gap_is_cnp.is_some() && !nic.has_dcqcn()),
                ("paths", self.paths.is_some() && !self.bears_reordering(nic)),
                ("swift", self.swift.is_some() && !nic.has_swift()),
                ("irn", self.irn.is_some() && !has_irn(nic)),
                ("eqds", self.eqds.is_some() && nic != RdmaTransport::Eqds),
                (
                    "ack_every",
                    self.ack_every.is_some() && self.recovery(nic) != Recovery::GoBackN,
                ),
                (
                    "nak_every",
                    self.nak_every.is_some() && self.recovery(nic) != Recovery::GoBackN,
                ),
            ]
            .to_vec(),
            Protocol::Endpoint(scheme, control) => [
                (
                    "rate",
                    self.rate.is_some() && control != EndpointControl::Default,
                ),
                ("deadline", self.deadline.is_some() && scheme.is_exact()),
                ("window", self.window.is_some()),
                ("ack_every", self.ack_every.is_some()),
                ("timeout", self.timeout.is_some()),
                ("retries", self.retries.is_some()),
                ("nak_every", self.nak_every.is_some()),
                ("gap_is_cnp", self.gap_is_cnp.is_some()),
                ("paths", self.paths.is_some()),
                (
                    "dcqcn",
                    self.dcqcn.is_some() && control != EndpointControl::Dcqcn,
                ),
                (
                    "swift",
                    self.swift.is_some() && control != EndpointControl::Swift,
                ),
                (
                    "eqds",
                    self.eqds.is_some() && control != EndpointControl::Eqds,
                ),
                ("irn", self.irn.is_some()),
            ]
            .to_vec(),
        }
    }

    /// Whether a gap alone is no loss for a NIC, so that packets of a flow may take several paths.
    fn bears_reordering(&self, nic: RdmaTransport) -> bool {
        matches!(
            self.recovery(nic),
            Recovery::Trimming | Recovery::Rack { .. }
        )
    }

    /// Checks that the transport can carry all flows of a workload. NICs carry any.
    ///
    /// # Errors
    /// [`TransportError`] names the first flow that it cannot carry.
    pub(crate) fn check_flows(&self, flows: &[Flow]) -> Result<(), TransportError> {
        if let Protocol::Nic(_) = self.protocol()? {
            return Ok(());
        }
        let most = u64::from(self.mtu) << ENDPOINT_OFFSET_BITS;
        for (number, flow) in flows.iter().enumerate() {
            if flow.is_endless() {
                return Err(TransportError::EndlessFlow { flow: number });
            }
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

/// Whether a NIC repairs losses as IRN does.
fn has_irn(nic: RdmaTransport) -> bool {
    matches!(nic, RdmaTransport::Irn | RdmaTransport::Srnic)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use farwrite::SchemeName;

    use super::super::names;
    use super::super::protocol::ENDPOINT;
    use super::*;
    use crate::parameters::Dcqcn;

    #[test]
    fn every_protocol_has_valid_defaults() {
        for protocol in RdmaTransport::ALL {
            Transport::new(protocol.name()).validate().unwrap();
        }
        for scheme in SchemeName::EXACT {
            Transport::new(&format!("{ENDPOINT}{scheme}"))
                .validate()
                .unwrap();
        }
        for (suffix, control) in EndpointControl::NAMED {
            let transport = Transport::new(&format!("{ENDPOINT}sr-nack{suffix}"));
            transport.validate().unwrap();
            let want = Protocol::Endpoint(SchemeName::SrNack, control);
            assert_eq!(transport.protocol(), Ok(want));
            let plain = transport.switch(&[3], 38);
            let marks = control == EndpointControl::Dcqcn;
            assert_eq!(
                (plain.ecn.is_some(), transport.lacks(&plain)),
                (marks, None)
            );
        }
        for scheme in SchemeName::BOUNDED {
            let mut transport = Transport::new(&format!("{ENDPOINT}{scheme}"));
            let missing = transport.validate().unwrap_err().to_string();
            assert!(missing.contains("needs a deadline"), "{missing}");
            transport.deadline = Some(Duration::from_millis(3));
            transport.validate().unwrap();
        }
    }

    #[test]
    fn unknown_names_and_values_out_of_range_are_named() {
        assert!(Transport::new("farwrite-best-effort").validate().is_err());
        let unknown = Transport::new("tcp").validate().unwrap_err().to_string();
        assert_eq!(
            unknown,
            format!("protocol = \"tcp\": choose one of {}", names())
        );
        let wrong = Transport {
            mtu: 1500,
            ..Transport::new("roce")
        };
        let wrong = wrong.validate().unwrap_err().to_string();
        assert!(wrong.starts_with("mtu = 1500: "), "{wrong}");
        let wrong = Transport {
            dcqcn: Some(Dcqcn::default()),
            ..Transport::new("eqds")
        };
        let wrong = wrong.validate().unwrap_err().to_string();
        assert!(
            wrong.starts_with("dcqcn: eqds has no such setting"),
            "{wrong}"
        );
        let wrong = Transport {
            window: Some(7),
            ..Transport::new("farwrite-ec-mds:32,8")
        };
        let wrong = wrong.validate().unwrap_err().to_string();
        assert!(
            wrong.starts_with("window: farwrite-ec-mds:32,8 has no such"),
            "{wrong}"
        );
        let wrong = Transport {
            mtu: 1501,
            ..Transport::new("farwrite-sr-nack")
        };
        let wrong = wrong.validate().unwrap_err().to_string();
        assert!(wrong.contains("1501"), "{wrong}");
        let wrong = Transport {
            rate: Some(1_000_000),
            ..Transport::new("farwrite-best-effort+sr+swift")
        };
        let wrong = wrong.validate().unwrap_err().to_string();
        assert!(
            wrong.starts_with("rate: farwrite-best-effort+sr+swift has no such"),
            "{wrong}"
        );
    }

    #[test]
    fn names_of_endpoints_that_are_wrong_are_explained() {
        for unknown in [
            "farwrite-",
            "farwrite-tcp",
            "farwrite-+dcqcn",
            "farwrite-sr-nack+tcp",
            "farwrite-sr-nack+dcqcn+swift",
        ] {
            let wrong = Transport::new(unknown).validate().unwrap_err().to_string();
            let begins = format!("protocol = {unknown:?}: of endpoints, there are farwrite-sr-rto");
            assert!(wrong.starts_with(&begins), "{wrong}");
            assert!(
                wrong.ends_with("one of +known, +fixed, +dcqcn, +swift, +eqds may follow"),
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
            let wrong = Transport::new(&name).validate().unwrap_err().to_string();
            let begins = format!("protocol = {name:?}: {why}");
            assert!(wrong.starts_with(&begins), "{wrong}");
        }
    }
}
