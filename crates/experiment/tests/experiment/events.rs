//! Single events of a run.

use farwrite_experiment::plan::{Plan, sweep};
use farwrite_experiment::{Recording, SeriesEvent};

const PLAN: &str = "[topology.rack]\nshape = \"star\"\nhosts = 16\ncable = { rate = \"100Gbit\", delay = \"1us\" }\n\
                    [workload.incast]\npattern = \"incast\"\nsenders = 15\nsize = \"500kB\"\n";

/// The switch stops and resumes the senders, and they get congestion notifications.
#[test]
fn a_series_has_each_pause_and_each_notification() {
    let plan = Plan::read(PLAN, &|_| Err(String::new())).unwrap();
    let recording = Recording {
        series: true,
        ..Recording::default()
    };
    let mut ran = sweep(&plan, 1, Some((0, recording)), |_| true);
    let outcome = ran.remove(0).outcome.unwrap();
    let series = outcome.series.unwrap();
    assert!(series.events.is_sorted_by_key(SeriesEvent::at_ns));
    assert_eq!(series.more_events, 0);
    let (mut pauses, mut stopped) = (0, [false; 17]);
    let mut notified = [0; 15];
    for event in &series.events {
        match *event {
            SeriesEvent::Pause(pause) => {
                assert_eq!((pause.port, pause.priority), (0, 3));
                let host = &mut stopped[pause.node.0 as usize];
                // Stops and resumes take turns.
                assert_ne!(*host, pause.stops);
                *host = pause.stops;
                pauses += 1;
            }
            SeriesEvent::Notification { flow, .. } => notified[flow] += 1,
        }
    }
    assert!(pauses > 30 && pauses <= outcome.totals.pauses_received);
    // The last samples of flows come before their ends.
    for (flow, samples) in series.flows.iter().enumerate() {
        let sampled = samples.last().unwrap().notifications;
        assert!(notified[flow] >= sampled, "{flow}: {sampled}");
    }
    assert!(notified.iter().sum::<u64>() > 15);
    // The other runs record nothing.
    let mut ran = sweep(&plan, 1, None, |_| true);
    let other = ran.remove(0).outcome.unwrap();
    assert_eq!(other.series, None);
    assert_eq!(other.trace_hash, outcome.trace_hash);
}
