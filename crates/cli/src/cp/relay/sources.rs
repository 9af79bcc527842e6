//! The sockets of this machine that send to an entrance.

use std::net::SocketAddr;

use super::MAX_FLOWS;

/// The source of each flow.
#[derive(Default)]
pub(super) struct Sources {
    /// At most [`MAX_FLOWS`], the oldest first.
    flows: Vec<Source>,
}

struct Source {
    flow: u8,
    at: SocketAddr,
    /// Whether the other end has sent something to it.
    is_answered: bool,
}

impl Sources {
    /// The number of the flow from a source. A new source takes a free number, or that of the oldest source that
    /// has got no answer, which most likely is a stranger; `None` if all sources have got answers.
    pub(super) fn flow_of(&mut self, at: SocketAddr) -> Option<u8> {
        if let Some(known) = self.flows.iter().find(|source| source.at == at) {
            return Some(known.flow);
        }
        let flow = match self.flows.len() {
            MAX_FLOWS => {
                let unanswered = self.flows.iter().position(|source| !source.is_answered)?;
                self.flows.remove(unanswered).flow
            }
            free => u8::try_from(free).ok()?,
        };
        self.flows.push(Source {
            flow,
            at,
            is_answered: false,
        });
        Some(flow)
    }

    /// The source of a flow that now gets a datagram from the other end; `None` if the flow has not begun.
    pub(super) fn answered(&mut self, flow: u8) -> Option<SocketAddr> {
        let mut flows = self.flows.iter_mut();
        let source = flows.find(|source| source.flow == flow)?;
        source.is_answered = true;
        Some(source.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_source_takes_the_flow_of_the_oldest_one_without_an_answer() {
        let mut sources = Sources::default();
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        for port in 0..16 {
            assert_eq!(sources.flow_of(at(port)).map(u16::from), Some(port));
        }
        assert_eq!(sources.answered(0), Some(at(0)));
        assert_eq!(sources.flow_of(at(16)), Some(1));
        assert_eq!(sources.flow_of(at(1)), Some(2), "which begins again");
        assert_eq!(sources.flow_of(at(0)), Some(0), "which has an answer");
        for flow in 1..16 {
            assert!(sources.answered(flow).is_some());
        }
        assert_eq!(sources.flow_of(at(17)), None);
        assert_eq!(sources.answered(1), Some(at(16)));
        assert_eq!(sources.answered(16), None);
    }
}
