//! The resources that a queue pair takes from the fabric and returns to it.

use farwrite_fabric::Adapter;
use farwrite_fabric::contract::{
    Fabric, FabricError, QpAttr, QpRoute, QpSealing, Qpn, RemoteQp, WindowSet,
};
use farwrite_sdr::{Geometry, QpInfo};

use crate::completion_context::{CompletionContext, Role};
use crate::completions::MAX_WAITING;
use crate::control_packets;
use crate::handle::QueuePair;

/// Queue pairs and window sets of the fabric.
#[derive(Debug, Default)]
pub(super) struct FabricResources {
    /// Sorted by generation, then by channel. The control queue pair is last.
    qpns: Vec<Qpn>,
    /// Channels of each generation.
    channels: usize,
    /// One window set for each generation, with a window for each slot. It is bound to the data
    /// queue pairs of the generation.
    windows: Vec<WindowSet>,
}

impl FabricResources {
    /// Takes all resources that a queue pair of this shape needs, or none.
    pub(super) fn take<F: Fabric>(
        fabric: &mut Adapter<F>,
        name: QueuePair,
        geometry: &Geometry,
    ) -> Result<Self, FabricError> {
        let mut resources = Self::default();
        match resources.fill(fabric, name, geometry) {
            Ok(()) => Ok(resources),
            Err(error) => {
                resources.give_back(fabric)?;
                Err(error)
            }
        }
    }

    fn fill<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        pair: QueuePair,
        geometry: &Geometry,
    ) -> Result<(), FabricError> {
        let config = geometry.config();
        self.channels = config.channels.into();
        let context = |role| CompletionContext { pair, role }.encode();
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
        let (slots, slot_bytes) = (geometry.table_slots(), geometry.slot_bytes());
        for generation in self.qpns.chunks(self.channels) {
            let set = fabric.create_windows(generation, slots, slot_bytes)?;
            self.windows.push(set);
        }
        self.qpns.push(fabric.create_qp(QpAttr {
            mtu: control_packets::MTU,
            port: 0,
            recv_buffers: MAX_WAITING,
            context: context(Role::Control),
        })?);
        Ok(())
    }

    /// Connects every queue pair to the queue pair of the same generation and channel in `peer`, or
    /// connects none. Writes are sealed as `sealing` says. The control queue pair carries SENDs
    /// alone, and no window set is bound to it.
    pub(super) fn connect<F: Fabric>(
        &self,
        fabric: &mut Adapter<F>,
        peer: &QpInfo,
        sealing: Option<QpSealing>,
    ) -> Result<(), FabricError> {
        let channels = |generation| std::iter::zip(generation, &peer.channels);
        let data = peer.data_qpns.iter().flat_map(channels);
        let remotes = data.chain([(&peer.control_qpn, &peer.control)]);
        for (index, (&qpn, (&remote, &addr))) in self.qpns.iter().zip(remotes).enumerate() {
            let remote = RemoteQp {
                addr,
                qpn: Qpn(remote),
            };
            let sealing = sealing.filter(|_| qpn != self.control_qpn());
            let sealed = fabric.seal_qp(qpn, sealing);
            if let Err(error) = sealed.and_then(|()| fabric.connect_qp(qpn, remote)) {
                for &connected in &self.qpns[..index] {
                    fabric.disconnect_qp(connected)?;
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Moves the queue pairs of each channel to the channel's route in `routes`. The control queue
    /// pair moves to the first route.
    pub(super) fn set_routes<F: Fabric>(
        &self,
        fabric: &mut Adapter<F>,
        routes: &[QpRoute],
    ) -> Result<(), FabricError> {
        // Data queue pairs are sorted by generation, then by channel.
        for (&qpn, &route) in self.data_qpns().iter().zip(routes.iter().cycle()) {
            fabric.set_route(qpn, route)?;
        }
        routes
            .first()
            .map_or(Ok(()), |&route| fabric.set_route(self.control_qpn(), route))
    }

    /// Returns all resources to the fabric, even if some calls fail. Returns the first error. Open
    /// windows begin to close.
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

    /// Returns the data queue pairs, sorted by generation, then by channel.
    pub(super) fn data_qpns(&self) -> &[Qpn] {
        &self.qpns[..self.qpns.len() - 1]
    }

    pub(super) fn data_qpn(&self, generation: u8, channel: u8) -> Qpn {
        self.qpns[usize::from(generation) * self.channels + usize::from(channel)]
    }

    pub(super) fn control_qpn(&self) -> Qpn {
        self.qpns[self.qpns.len() - 1]
    }

    pub(super) fn windows(&self, generation: u8) -> WindowSet {
        self.windows[usize::from(generation)]
    }
}
