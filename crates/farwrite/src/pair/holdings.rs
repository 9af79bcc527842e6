//! What a queue pair takes from the fabric, and gives back.

use farwrite_fabric::Adapter;
use farwrite_fabric::contract::{Fabric, FabricError, QpAttr, QpPath, Qpn, RemoteQp, WindowSet};
use farwrite_sdr::{Geometry, QpInfo};

use crate::control;
use crate::handle::QueuePair;
use crate::intake::MAX_WAITING;
use crate::route::{Role, Route};

/// Queue pairs and window sets of the fabric.
#[derive(Debug, Default)]
pub(super) struct Holdings {
    /// Generation by generation, in each channel by channel, and last the control path's.
    qpns: Vec<Qpn>,
    /// One window set a generation: a window for each slot.
    windows: Vec<WindowSet>,
}

impl Holdings {
    /// Takes all that a queue pair of this shape needs, or nothing.
    pub(super) fn take<F: Fabric>(
        fabric: &mut Adapter<F>,
        name: QueuePair,
        geometry: &Geometry,
    ) -> Result<Self, FabricError> {
        let mut holdings = Self::default();
        match holdings.fill(fabric, name, geometry) {
            Ok(()) => Ok(holdings),
            Err(error) => {
                holdings.give_back(fabric)?;
                Err(error)
            }
        }
    }

    fn fill<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        name: QueuePair,
        geometry: &Geometry,
    ) -> Result<(), FabricError> {
        let config = geometry.config();
        let context = |role| {
            let QueuePair { index, serial } = name;
            let route = Route {
                index,
                serial,
                role,
            };
            route.context()
        };
        for _ in 0..config.generations {
            let set = fabric.create_windows(geometry.table_slots(), geometry.slot_bytes())?;
            self.windows.push(set);
        }
        for generation in 0..config.generations {
            for channel in 0..config.channels {
                self.qpns.push(fabric.create_qp(QpAttr {
                    mtu: config.mtu,
                    port: channel.into(),
                    recv_buffers: 0,
                    context: context(Role::Data { generation }),
                })?);
            }
        }
        self.qpns.push(fabric.create_qp(QpAttr {
            mtu: control::MTU,
            port: 0,
            recv_buffers: MAX_WAITING,
            context: context(Role::Control),
        })?);
        Ok(())
    }

    /// Connects every queue pair to the one of the same generation and channel that `peer` names,
    /// or none of them.
    pub(super) fn connect<F: Fabric>(
        &self,
        fabric: &mut Adapter<F>,
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

    /// Puts the queue pairs of each channel on a path of `paths`, and the one for control packets on
    /// the first.
    pub(super) fn set_paths<F: Fabric>(
        &self,
        fabric: &mut Adapter<F>,
        paths: &[QpPath],
    ) -> Result<(), FabricError> {
        // Data queue pairs are listed channel by channel, generation after generation.
        for (&qpn, &path) in self.data_qpns().iter().zip(paths.iter().cycle()) {
            fabric.set_path(qpn, path)?;
        }
        paths
            .first()
            .map_or(Ok(()), |&path| fabric.set_path(self.control_qpn(), path))
    }

    /// Gives everything back, even if some of it fails; returns the first error. Open windows begin
    /// to close.
    pub(super) fn give_back<F: Fabric>(&self, fabric: &mut Adapter<F>) -> Result<(), FabricError> {
        let mut result = Ok(());
        for &qpn in &self.qpns {
            result = result.and(fabric.destroy_qp(qpn));
        }
        for &set in &self.windows {
            result = result.and(fabric.destroy_windows(set));
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

    /// The windows of a generation.
    pub(super) fn windows(&self, generation: u8) -> WindowSet {
        self.windows[usize::from(generation)]
    }
}
