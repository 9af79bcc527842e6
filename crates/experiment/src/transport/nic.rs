//! A transport on a NIC: the settings of queue pairs, and their congestion control.

use farwrite_rc::{Connection, Nic, PathProfile, Paths, QpConfig, RdmaTransport, Recovery};

use super::{Protocol, Transport, TransportError};
use crate::units::nanoseconds;

/// Largest number of consecutive retransmissions of a NIC without progress.
const RETRIES: u8 = 7;
/// Packets from one acknowledgement to the next with Go-Back-N, which does not need more
/// acknowledgements to repair losses.
const ACK_EVERY: u32 = 16;

impl Transport {
    /// Sets up the NIC of a host that receives flows. `path` has the rate of its cable and the
    /// longest round trip of the flows.
    ///
    /// # Errors
    /// [`TransportError::Unknown`].
    pub(crate) fn prepare(&self, nic: &mut Nic, path: &PathProfile) -> Result<(), TransportError> {
        self.nic()?.prepare(nic, path, self.dcqcn(path));
        Ok(())
    }

    /// Adds one end of a flow to a NIC and returns the number of its queue pair.
    ///
    /// # Errors
    /// [`TransportError`].
    pub(crate) fn connect(
        &self,
        nic: &mut Nic,
        to: Connection,
        peer_qpn: u32,
        path: &PathProfile,
    ) -> Result<u32, TransportError> {
        let protocol = self.nic()?;
        let config = self.queue_pair(protocol, peer_qpn, path);
        let connected = match self.nic_control(protocol, path) {
            Some(control) => nic.connect_under(to, config, control),
            None => nic.connect(to, config),
        };
        Ok(connected?)
    }

    /// The congestion controller of a queue pair of a NIC.
    fn nic_control(
        &self,
        protocol: RdmaTransport,
        path: &PathProfile,
    ) -> Option<Box<dyn farwrite_rate::RateControl + Send>> {
        let base = protocol.swift(path);
        if let (Some(own), Some(base)) = (&self.swift, base) {
            return Some(Box::new(farwrite_rate::Swift::new(own.apply(base))));
        }
        if let (Some(own), RdmaTransport::Eqds) = (&self.eqds, protocol) {
            let options = own.apply(RdmaTransport::first_window(path));
            return Some(Box::new(farwrite_rate::Eqds::new(options)));
        }
        protocol.control(path, self.dcqcn(path))
    }

    fn nic(&self) -> Result<RdmaTransport, TransportError> {
        match self.protocol()? {
            Protocol::Nic(nic) => Ok(nic),
            Protocol::Endpoint(..) => Err(TransportError::Unknown {
                name: self.protocol.clone(),
            }),
        }
    }

    pub(super) fn queue_pair(
        &self,
        protocol: RdmaTransport,
        peer_qpn: u32,
        path: &PathProfile,
    ) -> QpConfig {
        let base = protocol.config(peer_qpn, path);
        let ack_every = match base.recovery {
            Recovery::GoBackN => ACK_EVERY,
            Recovery::Irn { .. } | Recovery::Trimming | Recovery::Rack { .. } => {
                base.ack_every_packets
            }
        };
        let base = self.irn.as_ref().map_or(base, |irn| irn.apply(base));
        QpConfig {
            window_packets: self.window.unwrap_or(base.window_packets),
            ack_every_packets: self.ack_every.unwrap_or(ack_every),
            ack_timeout_ns: self.timeout.map_or(base.ack_timeout_ns, nanoseconds),
            retry_limit: self.retries.unwrap_or(RETRIES),
            nak_every_ns: self.nak_every.map(nanoseconds),
            gap_is_cnp: self.gap_is_cnp.unwrap_or(false),
            paths: self.paths.map_or(base.paths, |ports| Paths {
                ports,
                ..base.paths
            }),
            ..base
        }
    }

    /// Retransmission timeout of a NIC in nanoseconds; the maximum value for endpoints, which have
    /// none.
    pub(crate) fn timeout_ns(&self, path: &PathProfile) -> u64 {
        let nic = self.nic();
        nic.map_or(u64::MAX, |nic| self.queue_pair(nic, 2, path).ack_timeout_ns)
    }

    /// How a NIC repairs losses.
    pub(super) fn recovery(&self, nic: RdmaTransport) -> Recovery {
        nic.config(2, &self.path(0)).recovery
    }
}
