//! Why a text is not an address.

use std::net::Ipv6Addr;

/// Why a text is not an address, and what an address looks like.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}; write it like {form}")]
#[non_exhaustive]
pub struct AddressError {
    /// What is wrong with the text.
    pub problem: AddressProblem,
    /// What the text is for.
    pub form: AddressForm,
}

/// What an address is for. The text of each variant shows how such an address is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressForm {
    /// An address to connect to.
    #[error("far.example:4792, 192.0.2.7:4792, [2001:db8::7]:4792 or [fe80::7%eth0]:4792")]
    Target,
    /// An address to listen on.
    #[error("192.0.2.7:4792, [2001:db8::7]:4792, [fe80::7%eth0]:4792 or [::]:4792")]
    Listen,
}

impl AddressForm {
    pub(super) fn refused(self, problem: AddressProblem) -> AddressError {
        let form = self;
        AddressError { problem, form }
    }
}

/// What is wrong with an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressProblem {
    /// A bracket opens and does not close.
    #[error("the bracket ] is missing")]
    OpenBracket,
    /// No colon and port follow the bracket.
    #[error("there is no port after the bracket ]")]
    NoPortAfterBracket,
    /// There is no colon and port.
    #[error("there is no port")]
    NoPort,
    /// The port is not a number of 16 bits.
    #[error("the port is {0:?}, not a number up to 65535")]
    Port(String),
    /// The port of an address to connect to is 0.
    #[error("port 0 cannot be connected to")]
    PortZero,
    /// An IPv6 address without brackets.
    #[error("an IPv6 address must stand in brackets")]
    NoBrackets,
    /// Nothing stands before the port.
    #[error("there is no host before the port")]
    NoHost,
    /// The host has a character that no name has.
    #[error("the host has the character {0:?}")]
    HostCharacter(char),
    /// The text in brackets is not an IPv6 address.
    #[error("{0:?} is not an IPv6 address")]
    NotIpv6(String),
    /// A link-local address without its interface.
    #[error("{0} is link-local: name its interface after a %")]
    NoInterface(Ipv6Addr),
    /// An interface after an address that is not link-local.
    #[error("{0} is not link-local (fe80::/10) and so has no interface")]
    NotLinkLocal(Ipv6Addr),
    /// No interface can have this name.
    #[error("{0:?} cannot be the name of an interface")]
    InterfaceName(String),
    /// The interface of an address to listen on is not found, for this reason.
    #[error("{0}")]
    Interface(String),
    /// A name stands in place of an address to listen on.
    #[error("{0:?} is a name, and one listens on an address of this machine")]
    Name(String),
}
