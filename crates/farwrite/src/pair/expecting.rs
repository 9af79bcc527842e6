//! Receives of which all is known before their offer comes (P3.12).

use farwrite_fabric::Adapter;
use farwrite_fabric::contract::Fabric;
use farwrite_sdr::{SdrError, Terms};
use farwrite_wire::control::{SchemeTag, data_of};

use super::Pair;
use super::receiving::Offered;
use crate::error::Error;
use crate::options::RecvOptions;
use crate::registry::Registry;

impl Pair {
    /// The terms of a receive, which the sender learns with its clearance.
    pub(super) fn terms(&self, known: &Registry, options: &RecvOptions) -> Result<Terms, Error> {
        let unknown = |tag: &SchemeTag| *tag != SchemeTag::NONE && known.find(*tag).is_none();
        if let Some(tag) = options.scheme.filter(unknown) {
            return Err(Error::UnknownScheme(tag.id));
        }
        if options.immediate && self.geometry().fragments() == 0 {
            return Err(SdrError::ImmediatesOff.into());
        }
        Ok(Terms {
            exact_length: options.exact_length,
            immediate: options.immediate,
            scheme: options.scheme,
            accepts_partial: options.accept_partial,
        })
    }

    /// What the offer of a posted receive can only be, if that is known.
    fn foreseen(&self, message: u64) -> Option<Offered> {
        let recv = self.recvs.get(&message)?;
        let scheme = recv.terms.scheme.filter(|tag| *tag != SchemeTag::NONE)?;
        let (length, has_immediate) = (recv.target().length(), recv.terms.immediate);
        // Packets without bytes count from the offer on (P3.7).
        let has_empty_packets = self.geometry().has_empty_packets(length, has_immediate);
        let is_known = recv.terms.exact_length && !has_empty_packets;
        is_known.then_some(Offered {
            message,
            length: Some(length),
            scheme,
            has_immediate,
        })
    }

    /// Gets ready for what is known of a posted receive: notes whether its offer is foreseen, and
    /// provides memory for parity.
    pub(super) fn foresee<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        known: &Registry,
        message: u64,
    ) -> Result<(), Error> {
        if self.foreseen(message).is_some() {
            self.foreseen.insert(message);
        }
        let Some(recv) = self.recvs.get(&message) else {
            return Ok(());
        };
        let scheme = recv.terms.scheme.unwrap_or(self.expected);
        if let Some(layout) = self.layout(known, scheme, recv.target().length()) {
            self.provide_parity(fabric, message, &layout)?;
        }
        Ok(())
    }

    /// Something of message `newest` has come, so its sender has started it and all before it:
    /// the schemes of those that are foreseen need not wait for the offers.
    pub(super) fn begin_foreseen<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        known: &Registry,
        now_ns: u64,
        newest: u64,
    ) -> Result<(), Error> {
        while let Some(&message) = self.foreseen.first()
            && message <= data_of(newest)
        {
            self.foreseen.pop_first();
            if let Some(offered) = self.foreseen(message) {
                self.begin_recv(fabric, known, now_ns, &offered)?;
            }
        }
        Ok(())
    }
}
