//! Endpoints over UDP sockets.

use farwrite_fabric::udp::{ReservedPort, UdpConfig, UdpFabric};

use crate::endpoint::Endpoint;
use crate::error::Error;

impl Endpoint<UdpFabric> {
    /// Creates an endpoint over UDP sockets. Its keys come from the operating system's random
    /// number generator.
    ///
    /// # Errors
    /// [`Error::Fabric`] when the sockets cannot be created.
    pub fn over_udp(config: &UdpConfig) -> Result<Self, Error> {
        Self::over(UdpFabric::bind(config)?)
    }

    /// Same as [`Endpoint::over_udp`], at a port that this process holds.
    ///
    /// # Errors
    /// As [`Endpoint::over_udp`].
    pub fn over_udp_beside(config: &UdpConfig, held: &ReservedPort) -> Result<Self, Error> {
        Self::over(UdpFabric::bind_beside(config, held)?)
    }
}
