//! The queue pair of a stream, and the statistics of the queue pairs that it replaced.

use farwrite::{Endpoint, PeerStats, QpInfo, QpOptions, QpStats, QueuePair};
use farwrite_verbs::AnyFabric;

use crate::{EndpointCounters, Error, Event};

/// The queue pair of a stream. It may have replaced others (P8.5).
#[derive(Debug)]
pub(crate) struct StreamQp {
    qp: QueuePair,
    /// Statistics of the replaced queue pairs together.
    past: QpStats,
    /// The statistics of the peer when the last replaced queue pair ended; `None` if none was replaced.
    past_peer: Option<PeerStats>,
    /// Whether the queue pair is connected.
    is_open: bool,
}

impl StreamQp {
    /// Starts with a connected queue pair.
    pub(crate) fn new(qp: QueuePair) -> Self {
        Self {
            qp,
            past: QpStats::default(),
            past_peer: None,
            is_open: true,
        }
    }

    /// The queue pair, if it is connected.
    pub(crate) fn open(&self) -> Option<QueuePair> {
        self.is_open.then_some(self.qp)
    }

    /// What the peer needs to connect to the queue pair.
    pub(crate) fn info(&self, endpoint: &Endpoint<AnyFabric>) -> Result<QpInfo, Error> {
        Ok(endpoint.qp_info(self.qp)?)
    }

    /// Sums the statistics of the queue pair and of those that it replaced.
    pub(crate) fn stats(&self, endpoint: &Endpoint<AnyFabric>) -> Result<QpStats, Error> {
        Ok(self.past.and(&endpoint.qp_stats(self.qp)?))
    }

    /// # Errors
    /// Those of a queue pair that is broken.
    pub(crate) fn counters(&self, endpoint: &Endpoint<AnyFabric>) -> Result<Event, Error> {
        Ok(Event::Counters(Box::new(EndpointCounters {
            stats: self.stats(endpoint)?,
            peer: self.peer_stats(endpoint)?,
            packets: endpoint.counters(),
        })))
    }

    /// The statistics of the peer. Until the queue pair is connected, they are those of the previous
    /// queue pair. Congestion marks and doubtful reports are summed over all queue pairs.
    pub(crate) fn peer_stats(&self, endpoint: &Endpoint<AnyFabric>) -> Result<PeerStats, Error> {
        if let Some(past) = self.past_peer.filter(|_| !self.is_open) {
            return Ok(past);
        }
        let peer = endpoint.peer_stats(self.qp)?;
        let Some(past) = self.past_peer else {
            return Ok(peer);
        };
        Ok(PeerStats {
            marked_packets: peer.marked_packets + past.marked_packets,
            stale_packets: peer.stale_packets + past.stale_packets,
            refused_feedback: peer.refused_feedback + past.refused_feedback,
            excess_feedback: peer.excess_feedback + past.excess_feedback,
            ..peer
        })
    }

    /// Ends the queue pair and makes another with new keys. The caller must then connect it.
    pub(crate) fn replace(
        &mut self,
        endpoint: &mut Endpoint<AnyFabric>,
        options: QpOptions,
    ) -> Result<QpInfo, Error> {
        self.past_peer = Some(self.peer_stats(endpoint)?);
        self.past = self.stats(endpoint)?;
        self.is_open = false;
        endpoint.destroy_qp(self.qp)?;
        self.qp = endpoint.create_qp(options)?;
        Ok(endpoint.qp_info(self.qp)?)
    }

    /// Marks the queue pair of [`StreamQp::replace`] as connected. The caller connects it at once.
    pub(crate) fn reopen(&mut self) -> QueuePair {
        self.is_open = true;
        self.qp
    }
}
