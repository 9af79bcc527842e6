//! The names of transports.

use farwrite::schemes::registry::ParseSchemeError;
use farwrite::{RateControlName, SchemeName};
use farwrite_rc::RdmaTransport;

use super::TransportError;
use super::xp::XP;

/// Prefix of the names of endpoint transports. The name of a scheme follows.
pub(super) const ENDPOINT: &str = "farwrite-";
/// What precedes the control of the rate.
const AT: char = '@';
/// The control that starts with knowledge of the path.
const KNOWN: &str = "known";

/// What the name of a transport says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    /// A NIC model with reliable connections.
    Nic(RdmaTransport),
    /// NICs with XP.
    Xp,
    /// An endpoint of [`farwrite`], with this scheme for each flow.
    Endpoint(SchemeName, ControlName),
}

/// What sets the rate of endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ControlName {
    /// The adaptive controller, which starts with the rate and the round trip of the path.
    Known,
    /// This controller. A fixed rate is that of the path.
    Of(RateControlName),
}

impl Protocol {
    /// Parses a name.
    pub(super) fn parse(name: &str) -> Result<Self, TransportError> {
        if name == XP {
            return Ok(Self::Xp);
        }
        let given = || name.to_owned();
        let renamed = renamed(name);
        let name = renamed.as_deref().unwrap_or(name);
        let Some(of_endpoint) = name.strip_prefix(ENDPOINT) else {
            let nic = name.parse().map(Self::Nic);
            return nic.map_err(|_| TransportError::Unknown { name: given() });
        };
        let (scheme, control) = match of_endpoint.rsplit_once(AT) {
            Some((scheme, control)) => (scheme, ControlName::parse(control)),
            None => (of_endpoint, Some(ControlName::DEFAULT)),
        };
        let unknown = || TransportError::Scheme { name: given() };
        match (scheme.parse(), control) {
            (Ok(scheme), Some(control)) => Ok(Self::Endpoint(scheme, control)),
            (Err(why @ ParseSchemeError::Code(_)), Some(_)) => {
                Err(TransportError::Code { name: given(), why })
            }
            _ => Err(unknown()),
        }
    }

    /// The name of an endpoint transport.
    pub(super) fn of_endpoint(scheme: SchemeName, control: ControlName) -> String {
        match control {
            ControlName::DEFAULT => format!("{ENDPOINT}{scheme}"),
            ControlName::Known => format!("{ENDPOINT}{scheme}{AT}{KNOWN}"),
            ControlName::Of(control) => format!("{ENDPOINT}{scheme}{AT}{control}"),
        }
    }
}

impl ControlName {
    /// That of names without a control.
    pub(super) const DEFAULT: Self = Self::Of(RateControlName::Adaptive);

    fn parse(name: &str) -> Option<Self> {
        match name {
            KNOWN => Some(Self::Known),
            name => name.parse().ok().map(Self::Of),
        }
    }
}

/// The present name of a transport whose control of the rate follows a `+`, as in the last release:
/// `farwrite-sr-nack@dcqcn` for `farwrite-sr-nack+dcqcn`. `None` for other names.
#[must_use]
pub fn renamed(name: &str) -> Option<String> {
    let (scheme, control) = name.strip_prefix(ENDPOINT)?.rsplit_once('+')?;
    let is_control = ControlName::parse(control).is_some() && control != "adaptive";
    is_control.then(|| format!("{ENDPOINT}{scheme}{AT}{control}"))
}

/// The names of all transports, separated by commas.
#[must_use]
pub fn names() -> String {
    let nics = RdmaTransport::ALL.map(RdmaTransport::name);
    format!(
        "{}, {XP}, or {ENDPOINT}SCHEME, such as {ENDPOINT}sr-nack or {ENDPOINT}sr-nack{AT}dcqcn",
        nics.join(", ")
    )
}

/// The names of all transports of endpoints, separated by commas.
pub(super) fn endpoint_names() -> String {
    let schemes = SchemeName::EXACT.into_iter().chain(SchemeName::BOUNDED);
    let names: Vec<_> = schemes
        .map(|scheme| format!("{ENDPOINT}{scheme}"))
        .collect();
    let controls = RateControlName::ALL.map(RateControlName::as_str);
    let controls = [KNOWN].into_iter().chain(controls);
    let controls: Vec<_> = controls.map(|control| format!("{AT}{control}")).collect();
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
        "{}; {XP} (no repair, messages end at a deadline, DCQCN; OptiNIC); {endpoints} {ENDPOINT}sr-nack or {ENDPOINT}ec-mds:32,8, and a congestion control in \
         place of their own: {ENDPOINT}sr-nack{AT}dcqcn, {ENDPOINT}sr-nack{AT}swift or \
         {ENDPOINT}sr-nack{AT}eqds; or with knowledge of the path: {ENDPOINT}sr-nack{AT}known, or the \
         rate of the path as it is: {ENDPOINT}sr-nack{AT}fixed",
        nics.join("; ")
    )
}
