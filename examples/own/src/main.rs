//! The program `farwrite` with a congestion controller, a repair and a load balancer of its own.

mod aimd;
mod gaps;
mod shortest;

fn main() -> std::process::ExitCode {
    let own = farwrite_experiment::Extensions::new()
        .controller("aimd", aimd::Aimd::new)
        .repair("gaps", gaps::Gaps::new)
        .balancer("shortest", |_seed| shortest::Shortest);
    farwrite_cli::main_with(&own)
}
