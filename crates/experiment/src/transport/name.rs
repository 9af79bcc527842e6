//! The names of transports.

use farwrite::schemes::registry::ParseSchemeError;
use farwrite::{RateControlName, SchemeName};
use farwrite_rc::{RdmaTransport, Recovery};

use super::TransportError;
use super::xp::{XP, XP_EQDS};
use crate::Extensions;
use crate::extensions::{MakeControl, MakeRepair, Named};

/// Prefix of the names of endpoint transports. The name of a scheme follows.
pub(super) const ENDPOINT: &str = "farwrite-";
/// What precedes the control of the rate.
pub(super) const AT: char = '@';
/// The control that starts with knowledge of the path.
const KNOWN: &str = "known";

/// What the name of a transport says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    /// A NIC model with reliable connections.
    Nic(NicName),
    /// NICs with XP.
    Xp(XpName),
    /// An endpoint of [`farwrite`], with this scheme for each flow.
    Endpoint(SchemeName, ControlName),
}

/// What limits a sender of XP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum XpName {
    Dcqcn,
    Eqds,
}

/// A NIC model, and what other crates put into it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NicName {
    /// The model. With a repair of another crate: that of IRN.
    pub(super) model: RdmaTransport,
    pub(super) repair: Option<Named<MakeRepair>>,
    pub(super) control: Option<NicControlName>,
}

/// A controller in place of that of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NicControlName {
    Dctcp,
    Timely,
    Hpcc,
    /// That of another crate.
    Own(Named<MakeControl>),
}

/// The controllers that any NIC but `eqds` can have.
const NIC_CONTROLS: [&str; 3] = [DCTCP, TIMELY, HPCC];
pub(super) const DCTCP: &str = "dctcp";
pub(super) const TIMELY: &str = "timely";
pub(super) const HPCC: &str = "hpcc";

impl NicControlName {
    fn parse(name: &str, extensions: &Extensions) -> Option<Self> {
        // A program may have its own version of a controller.
        extensions
            .control(name)
            .map(Self::Own)
            .or_else(|| match name {
                DCTCP => Some(Self::Dctcp),
                TIMELY => Some(Self::Timely),
                HPCC => Some(Self::Hpcc),
                _ => None,
            })
    }
}

impl NicName {
    /// Parses a name without the prefix of endpoints.
    fn parse(name: &str, extensions: &Extensions) -> Result<Self, TransportError> {
        let unknown = |what: &'static str, part: &str, known: &str| TransportError::Extension {
            name: name.to_owned(),
            what,
            part: part.to_owned(),
            known: known.to_owned(),
        };
        let [controllers, repairs] = extensions.names();
        let controllers = format!("{controllers}, beside {}", NIC_CONTROLS.join(", "));
        let (protocol, control) = match name.split_once(AT) {
            Some((protocol, control)) => (protocol, Some(control)),
            None => (name, None),
        };
        let control = control.map(|control| {
            let found = NicControlName::parse(control, extensions);
            found.ok_or_else(|| unknown("controller", control, &controllers))
        });
        let own = extensions.repair_of(protocol);
        let (model, repair) = match (protocol.parse(), own) {
            (Ok(model), _) => (model, None),
            (Err(_), Some(own)) => (RdmaTransport::Irn, Some(own)),
            (Err(_), None) if repairs == "none" && control.is_none() => {
                let name = name.to_owned();
                return Err(TransportError::Unknown { name });
            }
            (Err(_), None) => return Err(unknown("protocol or repair", protocol, &repairs)),
        };
        let control = control.transpose()?;
        if control.is_some() && model == RdmaTransport::Eqds {
            let key = "@ with a controller";
            let protocol = protocol.to_owned();
            return Err(TransportError::NoSetting { key, protocol });
        }
        Ok(Self {
            model,
            repair,
            control,
        })
    }

    /// Whether a controller of the model itself sets the rate.
    pub(super) fn has_dcqcn(&self) -> bool {
        self.control.is_none() && self.model.has_dcqcn()
    }

    pub(super) fn has_swift(&self) -> bool {
        self.control.is_none() && self.model.has_swift()
    }

    /// How losses are repaired.
    pub(super) fn recovery(&self) -> Recovery {
        match self.repair {
            Some(_) => Recovery::Own,
            None => super::nic::recovery(self.model),
        }
    }
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
    pub(super) fn parse(name: &str, extensions: &Extensions) -> Result<Self, TransportError> {
        let given = || name.to_owned();
        match name {
            XP => return Ok(Self::Xp(XpName::Dcqcn)),
            XP_EQDS => return Ok(Self::Xp(XpName::Eqds)),
            _ if name.split(AT).next() == Some(XP) => {
                return Err(TransportError::Unknown { name: given() });
            }
            _ => {}
        }
        let renamed = renamed(name);
        let name = renamed.as_deref().unwrap_or(name);
        let Some(of_endpoint) = name.strip_prefix(ENDPOINT) else {
            return NicName::parse(name, extensions).map(Self::Nic);
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
        "{}, {XP}, {XP_EQDS}, or {ENDPOINT}SCHEME, such as {ENDPOINT}sr-nack or {ENDPOINT}sr-nack{AT}dcqcn; {} may follow NICs, \
         as in roce{AT}{HPCC}",
        nics.join(", "),
        NIC_CONTROLS.map(|name| format!("{AT}{name}")).join(", ")
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
        "{}; NICs with DCTCP, TIMELY or HPCC in place of their congestion control, such as roce{AT}{DCTCP}, \
         roce{AT}{TIMELY} or irn{AT}{HPCC}; {XP} (no repair, messages end at a deadline, DCQCN; OptiNIC); {XP_EQDS} (the same with credit); {endpoints} {ENDPOINT}sr-nack or {ENDPOINT}ec-mds:32,8, and a congestion control in \
         place of their own: {ENDPOINT}sr-nack{AT}dcqcn, {ENDPOINT}sr-nack{AT}swift or \
         {ENDPOINT}sr-nack{AT}eqds; or with knowledge of the path: {ENDPOINT}sr-nack{AT}known, or the \
         rate of the path as it is: {ENDPOINT}sr-nack{AT}fixed",
        nics.join("; ")
    )
}
