//! What a queue pair takes from the fabric, and gives back.

use farwrite_fabric::contract::{Fabric, FabricError, QpAttr, Qpn, RemoteQp, Rkey};
use farwrite_sdr::{Geometry, QpInfo};

use crate::control;

/// Receives kept posted on each internal queue pair: more than arrive between two polls.
const DATA_RECV_DEPTH: u32 = 8192;
const CONTROL_RECV_DEPTH: u32 = 1024;

/// Queue pairs and keys of the fabric.
#[derive(Debug, Default)]
pub(super) struct Holdings {
    /// Generation by generation, in each channel by channel, and last the control path's.
    qpns: Vec<Qpn>,
    /// One zero-based root key a generation.
    roots: Vec<Rkey>,
}

impl Holdings {
    /// Takes all that a queue pair of this shape needs, or nothing.
    pub(super) fn take<F: Fabric>(
        fabric: &mut F,
        geometry: &Geometry,
    ) -> Result<Self, FabricError> {
        let mut holdings = Self::default();
        match holdings.fill(fabric, geometry) {
            Ok(()) => Ok(holdings),
            Err(error) => {
                holdings.give_back(fabric)?;
                Err(error)
            }
        }
    }

    fn fill<F: Fabric>(&mut self, fabric: &mut F, geometry: &Geometry) -> Result<(), FabricError> {
        let config = geometry.config();
        for _ in 0..config.generations {
            let root = fabric.create_root_key(geometry.table_slots(), geometry.slot_bytes())?;
            self.roots.push(root);
        }
        for _ in 0..config.generations {
            for channel in 0..config.channels {
                self.add_qp(fabric, config.mtu, channel.into(), DATA_RECV_DEPTH)?;
            }
        }
        self.add_qp(fabric, control::MTU, 0, CONTROL_RECV_DEPTH)
    }

    fn add_qp<F: Fabric>(
        &mut self,
        fabric: &mut F,
        mtu: u32,
        port: u16,
        depth: u32,
    ) -> Result<(), FabricError> {
        let qpn = fabric.create_qp(QpAttr {
            mtu,
            port,
            recv_depth: depth,
        })?;
        self.qpns.push(qpn);
        fabric.post_recv(qpn, depth)
    }

    /// Connects every queue pair to the one of the same generation and channel that `peer` names,
    /// or none of them.
    pub(super) fn connect<F: Fabric>(
        &self,
        fabric: &mut F,
        peer: &QpInfo,
    ) -> Result<(), FabricError> {
        let channels = |generation| std::iter::zip(generation, &peer.channels);
        let data = peer.data_qpns.iter().flat_map(channels);
        let remotes = data.chain([(&peer.control_qpn, &peer.control)]);
        for (index, (&qpn, (&remote, &addr))) in self.qpns.iter().zip(remotes).enumerate() {
            let remote = RemoteQp {
                addr,
                qpn: Qpn(remote),
            };
            if let Err(error) = fabric.connect_qp(qpn, remote) {
                for &connected in &self.qpns[..index] {
                    fabric.disconnect_qp(connected)?;
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Gives everything back; tries all of it, and tells the first error.
    pub(super) fn give_back<F: Fabric>(&self, fabric: &mut F) -> Result<(), FabricError> {
        let mut result = Ok(());
        for &qpn in &self.qpns {
            result = result.and(fabric.destroy_qp(qpn));
        }
        for &root in &self.roots {
            result = result.and(fabric.revoke(root));
        }
        result
    }

    /// The queue pairs of data, generation by generation, in each channel by channel.
    pub(super) fn data_qpns(&self) -> &[Qpn] {
        &self.qpns[..self.qpns.len() - 1]
    }

    pub(super) fn control_qpn(&self) -> Qpn {
        self.qpns[self.qpns.len() - 1]
    }

    /// The root key of a generation.
    pub(super) fn root(&self, generation: u8) -> Rkey {
        self.roots[usize::from(generation)]
    }
}
