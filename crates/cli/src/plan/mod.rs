//! `farwrite plan`: which scheme for a message on a path.

mod answer;
mod args;
mod nics;
mod path;
mod show;

use farwrite_model::plan::{Coding, Plan, Question};
use farwrite_model::{Code, Loss, ModelError, Scheme};

use crate::console::Console;
use crate::exit::{Exit, Failure};
use answer::Answer;
pub(crate) use args::PlanArgs;
use farwrite_units::show::real;
use nics::Nics;
use path::PlannedPath;

/// Plans for the path and the message of the command line, and shows the result.
pub(crate) fn run(args: &PlanArgs, console: &Console) -> Result<(), Failure> {
    let path = PlannedPath::find(&args.path)?;
    let question = question(args, &path)?;
    let refused = |error: ModelError| Failure::caused(Exit::Usage, "planning", &error);
    let plan = question.plan().map_err(refused)?;
    let rivals = rivals(&question, &plan);
    let among = Question {
        candidates: rivals.clone(),
        ..question.clone()
    };
    // The best of all is the best among its rivals too.
    let sensitivity = among.plan().and_then(|plan| plan.sensitivity());
    let sensitivity = sensitivity.map_err(refused)?;
    let nics = Nics::new(&path.of_packets(&question));
    let answer = Answer::new(&question, &plan, &rivals, &sensitivity, nics).map_err(refused)?;
    console.say(answer.text(args.all));
    console.json(&answer)
}

/// With what the best is compared to see how sure it is: with all, or, where losses come in bursts,
/// which take the model long, with the best of each kind and with the most parity.
fn rivals(question: &Question, plan: &Plan) -> Vec<Scheme> {
    let all = plan.alternatives();
    if let Loss::Iid { .. } = question.loss {
        return all.iter().map(|at| at.scheme).collect();
    }
    let mut rivals = vec![plan.best().scheme];
    // The first of each kind costs least, and the first of all is close to the best.
    for at in all {
        if !rivals.iter().any(|known| is_alike(*known, at.scheme)) {
            rivals.push(at.scheme);
        }
    }
    let coded = all.iter().filter(|at| {
        matches!(
            at.scheme,
            Scheme::Ec {
                code: Code::Mds,
                ..
            }
        )
    });
    let most = coded.max_by(|x, y| x.parity_overhead.total_cmp(&y.parity_overhead));
    rivals.extend(most.map(|at| at.scheme));
    rivals.sort_unstable_by_key(ToString::to_string);
    rivals.dedup();
    rivals
}

/// Whether two schemes differ in their parameters alone.
fn is_alike(one: Scheme, other: Scheme) -> bool {
    match (one, other) {
        (Scheme::Ec { code: one, .. }, Scheme::Ec { code: other, .. }) => one == other,
        _ => one == other,
    }
}

/// The question that the command line asks.
fn question(args: &PlanArgs, path: &PlannedPath) -> Result<Question, Failure> {
    let mut question = Question::new(real(args.size), path.rate_bps, path.rtt_s, 0.0);
    question.loss = path.loss()?;
    question.chunk_bytes = real(path.chunk_bytes);
    question.objective = args.objective;
    question.max_parity_overhead = args.parity_budget;
    question.coding = Coding {
        cores: args.cores,
        ..Coding::default()
    };
    match (&args.scheme, question.loss) {
        (Some(schemes), _) => question.candidates = schemes.to_vec(),
        (None, Loss::Markov { .. }) => question.candidates.retain(|at| is_quick_in_bursts(*at)),
        (None, Loss::Iid { .. }) => {}
    }
    Ok(question)
}

/// Where losses come in bursts, a scheme that codes takes the model tenths of a second, and an XOR
/// code with many sub-groups, every set of which is counted, many seconds (docs/model.md, section
/// 6.1).
fn is_quick_in_bursts(scheme: Scheme) -> bool {
    match scheme {
        Scheme::Ec { code, k, m } => matches!(k, 32 | 128) && (m <= 8 || code == Code::Mds),
        _ => true,
    }
}
