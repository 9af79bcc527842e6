//! How a member connects to the other ranks.

use farwrite::{Endpoint, Fabric, QpInfo, QueuePair};

use super::Member;
use crate::bounded::qp::BoundedQp;
use crate::error::CollectiveError;
use crate::exact_qp::ExactQp;
use crate::info::{MemberInfo, Shape};

impl<F: Fabric> Member<F> {
    /// The information that the other ranks need to [connect](Member::connect). It contains keys
    /// and must travel confidentially.
    ///
    /// # Errors
    /// [`CollectiveError::Endpoint`].
    pub fn info(&self) -> Result<Vec<u8>, CollectiveError> {
        let mut queue_pairs = Vec::new();
        let peers = (0..self.view.ranks).filter(|&peer| peer != self.view.rank);
        for qp in peers.flat_map(|peer| self.queue_pairs_to(peer)) {
            let info = self.endpoint.qp_info(qp)?.encode();
            queue_pairs.push(info.map_err(|error| CollectiveError::Info {
                rank: self.view.rank,
                problem: error.to_string(),
            })?);
        }
        let info = MemberInfo {
            rank: to_u16(self.view.rank),
            ranks: to_u16(self.view.ranks),
            shape: self.shape(),
            queue_pairs,
        };
        Ok(info.encode())
    }

    fn shape(&self) -> Shape {
        let sites = &self.options.sites;
        let site = |rank: usize| sites.get(rank).map_or(0, |site| site.saturating_add(1));
        Shape {
            packet_bytes: self.options.packet_bytes,
            packets_per_segment: self.options.packets_per_segment,
            segments_in_flight: self.options.segments_in_flight,
            most_segments_in_flight: self.options.most_segments_in_flight,
            bounded: self.options.bounded.into(),
            sites: (0..self.view.ranks).map(site).collect(),
        }
    }

    /// Joins this rank to all others. `infos` holds the result of [`Member::info`] of each rank, in
    /// the order of ranks, including this rank.
    ///
    /// # Errors
    /// [`CollectiveError::Info`] names the rank whose information is invalid, and the reason.
    pub fn connect(&mut self, infos: &[Vec<u8>]) -> Result<(), CollectiveError> {
        self.connect_with(infos, |endpoint, _, qp, info| endpoint.connect_qp(qp, info))
    }

    /// The same as [`Member::connect`]. `connect` connects a queue pair to that of a rank.
    pub(crate) fn connect_with(
        &mut self,
        infos: &[Vec<u8>],
        mut connect: impl FnMut(
            &mut Endpoint<F>,
            usize,
            QueuePair,
            &QpInfo,
        ) -> Result<(), farwrite::Error>,
    ) -> Result<(), CollectiveError> {
        if infos.len() != self.view.ranks {
            return Err(CollectiveError::Argument {
                rank: self.view.rank,
                argument: "infos",
                value: infos.len().to_string(),
                expected: format!("one for each of {} ranks", self.view.ranks),
            });
        }
        if self.connected {
            return Ok(());
        }
        for (peer, bytes) in infos.iter().enumerate() {
            self.connect_to(peer, bytes, &mut connect)
                .map_err(|problem| CollectiveError::Info {
                    rank: peer,
                    problem,
                })?;
        }
        self.connected = true;
        Ok(())
    }

    fn connect_to(
        &mut self,
        peer: usize,
        bytes: &[u8],
        connect: &mut impl FnMut(
            &mut Endpoint<F>,
            usize,
            QueuePair,
            &QpInfo,
        ) -> Result<(), farwrite::Error>,
    ) -> Result<(), String> {
        let info = MemberInfo::decode(bytes)?;
        if usize::from(info.rank) != peer {
            return Err(format!(
                "its information says that it is rank {}",
                info.rank
            ));
        }
        if usize::from(info.ranks) != self.view.ranks {
            let (theirs, ours) = (info.ranks, self.view.ranks);
            return Err(format!(
                "it has a group of {theirs} ranks, this rank of {ours}"
            ));
        }
        let (theirs, ours) = (&info.shape, &self.shape());
        if theirs != ours {
            return Err(format!("it has options {theirs:?}, this rank {ours:?}"));
        }
        if peer == self.view.rank {
            return Ok(());
        }
        let infos = info.queue_pairs_to(self.view.rank)?;
        for (qp, info) in self.queue_pairs_to(peer).zip(infos) {
            let connected = connect(&mut self.endpoint, peer, qp, &info);
            connected.map_err(|error| error.to_string())?;
        }
        self.open_queue_pairs(peer)
            .map_err(|error| error.to_string())
    }

    /// The queue pairs to a rank, in the order of their information.
    fn queue_pairs_to(&self, peer: usize) -> impl Iterator<Item = QueuePair> + use<F> {
        let exact = self.in_order.qps[peer].as_ref().map(ExactQp::queue_pair);
        let bounded = self.in_order.bounded_qps[peer].as_ref();
        let bounded = bounded.map(BoundedQp::queue_pair);
        let points = self.send_receive.qps[peer]
            .as_ref()
            .map(ExactQp::queue_pair);
        let control = self.peers.qp(peer).map(ExactQp::queue_pair);
        [exact, bounded, points, control].into_iter().flatten()
    }

    /// Posts the receives of the queue pairs to a rank.
    fn open_queue_pairs(&mut self, peer: usize) -> Result<(), farwrite::Error> {
        let endpoint = &mut self.endpoint;
        if let Some(qp) = &mut self.in_order.qps[peer] {
            qp.open(endpoint)?;
        }
        if let Some(qp) = &mut self.in_order.bounded_qps[peer] {
            qp.open(endpoint)?;
        }
        if let Some(qp) = &mut self.send_receive.qps[peer] {
            qp.open(endpoint)?;
        }
        if let Some(qp) = self.peers.qp_mut(peer) {
            qp.open(endpoint)?;
        }
        Ok(())
    }
}

fn to_u16(rank: usize) -> u16 {
    u16::try_from(rank).expect("groups have at most MAX_RANKS ranks")
}
