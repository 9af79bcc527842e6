//! Plans a collective around a ring of sites that unequal paths join.

mod answer;
mod file;

use std::path::Path;

use farwrite_model::plan::{Question, Ring, RingLink};

use self::answer::Answer;
use self::file::Sites;
use super::args::{PlanArgs, RingCollective};
use super::path::PlannedPath;
use super::question;
use crate::console::Console;
use crate::exit::{Exit, Failure};

/// The paths of a plan. Paths with the same question share a link.
struct Links<'a> {
    sites: &'a Sites,
    links: Vec<(Question, RingLink)>,
    /// By sender, then by receiver: the path, and its link.
    at: Vec<Vec<Option<(PlannedPath, usize)>>>,
}

pub(super) fn run(
    args: &PlanArgs,
    collective: RingCollective,
    paths: &Path,
    console: &Console,
) -> Result<(), Failure> {
    let sites = file::read(paths)?;
    let count = sites.names.len();
    let part_bytes = args.size.div_ceil(count as u64);
    let steps = collective.steps(count);
    let links = Links::new(args, &sites, part_bytes, paths, console)?;
    let (first, _) = &links.links[0];
    let by_site = links.at.iter().map(|row| {
        let row = row.iter();
        row.map(|at| at.map(|(_, link)| &links.links[link].1))
            .collect()
    });
    let ring = Ring::new(by_site.collect(), steps, args.objective, first.close);
    let plan = ring.and_then(|ring| ring.plan());
    let plan = plan.map_err(|error| Failure::caused(Exit::Usage, "planning the ring", &error))?;
    let answer = Answer {
        collective,
        bytes: args.size,
        part_bytes,
        steps,
        question: first,
        links: &links,
        plan: &plan,
    };
    console.say(answer.text());
    console.json(&answer.json())
}

impl<'a> Links<'a> {
    /// Plans a step of `part_bytes` over each path.
    fn new(
        args: &PlanArgs,
        sites: &'a Sites,
        part_bytes: u64,
        file: &Path,
        console: &Console,
    ) -> Result<Self, Failure> {
        let mut questions: Vec<Question> = Vec::new();
        let mut at = vec![vec![None; sites.names.len()]; sites.names.len()];
        let mut places = Vec::new();
        let needed = sites.paths.iter().filter(|(pair, _)| sites.needs(**pair));
        for (&(from, to), path) in needed {
            let place = format!(
                "{}: the path from {} to {}",
                file.display(),
                sites.names[from],
                sites.names[to]
            );
            let refused = |why: String| Failure::new(Exit::Usage, format!("{place}: {why}"));
            let planned =
                PlannedPath::combine(&args.path, path.described, part_bytes).map_err(refused)?;
            let asked =
                question(args, part_bytes, &planned).map_err(|why| refused(why.to_string()))?;
            let known = questions.iter().position(|other| *other == asked);
            let link = known.unwrap_or(questions.len());
            if known.is_none() {
                if let Some(warning) = planned.beyond_message(&asked.loss, part_bytes) {
                    console.warn(format!("{place}: {warning}"));
                }
                questions.push(asked);
                places.push(place);
            }
            at[from][to] = Some((planned, link));
        }
        let all = questions.len() as u64;
        let mut links = Vec::new();
        for (mut asked, place) in questions.into_iter().zip(places) {
            asked.draw_work /= all;
            let link = RingLink::new(&asked);
            let link = link.map_err(|error| Failure::caused(Exit::Usage, &place, &error))?;
            links.push((asked, link));
        }
        Ok(Self { sites, links, at })
    }

    fn site(&self, index: usize) -> &str {
        &self.sites.names[index]
    }

    /// The path from a site to another one, with the question about a step and its answer.
    fn get(&self, from: usize, to: usize) -> Option<(&PlannedPath, &Question, &RingLink)> {
        let (path, link) = self.at[from][to].as_ref()?;
        let (question, link) = &self.links[*link];
        Some((path, question, link))
    }
}
