//! `farwrite plan`: which scheme for a message on a path.

mod answer;
mod args;
mod nics;
mod path;
mod ring;
mod show;

use farwrite_model::ModelError;
use farwrite_model::plan::{Coding, Question};

use crate::console::Console;
use crate::exit::{Exit, Failure};
use answer::Answer;
pub(crate) use args::PlanArgs;
use farwrite_units::show::real;
use path::PlannedPath;

/// Plans for the path and the message of the command line, and shows the result.
pub(crate) fn run(args: &PlanArgs, console: &Console) -> Result<(), Failure> {
    if let (Some(collective), Some(paths)) = (args.collective, &args.paths) {
        return ring::run(args, collective, paths, console);
    }
    let path = PlannedPath::find(&args.path, args.size, args.senders)?;
    let question = question(args, args.size, &path)?;
    if let Some(warning) = path.beyond_message(&question.loss, args.size) {
        console.warn(warning);
    }
    let refused = |error: ModelError| Failure::caused(Exit::Usage, "planning", &error);
    let plan = question.plan().map_err(refused)?;
    let answer = Answer::new(&question, &path, &plan).map_err(refused)?;
    console.say(show::text(&answer, args.all));
    console.json(&answer.json())
}

/// The question that the command line asks of a message of `size` bytes.
fn question(args: &PlanArgs, size: u64, path: &PlannedPath) -> Result<Question, Failure> {
    let mut question = Question::new(real(size), path.payload_bps(), path.rtt_s, 0.0);
    question.loss = path.loss()?;
    question.chunk_bytes = real(path.chunk_bytes);
    question.objective = args.objective;
    question.max_parity_overhead = args.parity_budget;
    question.coding = Coding {
        cores: args.cores,
        ..Coding::default()
    };
    // A scheme that was named is shown, or the reason why not. Others need no reason.
    question.candidates = match &args.scheme {
        Some(schemes) => schemes.to_vec(),
        None => question.affordable_candidates(),
    };
    Ok(question)
}
