//! Protocols of the hosts, and their names.

use farwrite::SchemeName;
use farwrite::schemes::registry::ParseSchemeError;
use farwrite_rc::RdmaTransport;

use super::TransportError;

/// Prefix of the names of endpoint protocols. The name of a scheme follows.
pub(super) const ENDPOINT: &str = "farwrite-";

/// The protocol of the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// A NIC model with reliable connections.
    Nic(RdmaTransport),
    /// An endpoint of [`farwrite`], with this scheme for each flow.
    Endpoint(SchemeName, EndpointControl),
}

/// What sets the rate of endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointControl {
    /// The adaptive controller, which knows nothing of the path, or
    /// [`Transport::rate`](super::Transport::rate).
    Default,
    /// The adaptive controller, which starts with the rate and the round trip of the path, like a
    /// sender that has used the path before.
    Known,
    /// The rate of the path, without control.
    Fixed,
    /// DCQCN.
    Dcqcn,
    /// Swift.
    Swift,
    /// EQDS.
    Eqds,
}

impl Protocol {
    /// Parses a name.
    pub(super) fn parse(name: &str) -> Result<Self, TransportError> {
        let given = || name.to_owned();
        let Some(of_endpoint) = name.strip_prefix(ENDPOINT) else {
            let nic = name.parse().map(Self::Nic);
            return nic.map_err(|_| TransportError::Unknown { name: given() });
        };
        let (scheme, control) = EndpointControl::split(of_endpoint);
        match scheme.parse() {
            Ok(scheme) => Ok(Self::Endpoint(scheme, control)),
            Err(why @ ParseSchemeError::Code(_)) => {
                Err(TransportError::Code { name: given(), why })
            }
            Err(_) => Err(TransportError::Scheme { name: given() }),
        }
    }
}

impl EndpointControl {
    /// Those with a name, which follows the name of the scheme.
    pub(super) const NAMED: [(&str, Self); 5] = [
        ("+known", Self::Known),
        ("+fixed", Self::Fixed),
        ("+dcqcn", Self::Dcqcn),
        ("+swift", Self::Swift),
        ("+eqds", Self::Eqds),
    ];

    /// Splits the name of a scheme and what follows it.
    fn split(name: &str) -> (&str, Self) {
        let found = Self::NAMED
            .into_iter()
            .find_map(|(suffix, control)| Some((name.strip_suffix(suffix)?, control)));
        found.unwrap_or((name, Self::Default))
    }
}

/// The names of all transports, separated by commas.
#[must_use]
pub fn names() -> String {
    let nics = RdmaTransport::ALL.map(RdmaTransport::name);
    format!(
        "{}, or {ENDPOINT}SCHEME, such as {ENDPOINT}sr-nack or {ENDPOINT}sr-nack+dcqcn",
        nics.join(", ")
    )
}

/// The names of all transports of endpoints, separated by commas.
pub(super) fn endpoint_names() -> String {
    let schemes = SchemeName::EXACT.into_iter().chain(SchemeName::BOUNDED);
    let names: Vec<_> = schemes
        .map(|scheme| format!("{ENDPOINT}{scheme}"))
        .collect();
    let controls = EndpointControl::NAMED.map(|(suffix, _)| suffix);
    format!(
        "{}; one of {} may follow",
        names.join(", "),
        controls.join(", ")
    )
}

/// The names and descriptions of all transports, for people.
#[must_use]
pub fn described() -> String {
    let line = |entry: RdmaTransport| format!("{entry} ({})", entry.about());
    let nics = RdmaTransport::ALL.map(line);
    let endpoints = "endpoints of farwrite with a scheme, such as";
    format!(
        "{}; {endpoints} {ENDPOINT}sr-nack or {ENDPOINT}ec-mds:32,8, and a congestion control in \
         place of their own: {ENDPOINT}sr-nack+dcqcn, {ENDPOINT}sr-nack+swift or {ENDPOINT}sr-nack+eqds; \
         or with knowledge of the path: {ENDPOINT}sr-nack+known, or the rate of the path as it is: \
         {ENDPOINT}sr-nack+fixed",
        nics.join("; ")
    )
}
