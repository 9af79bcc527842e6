//! Reads `sites.toml`: the sites of a ring, and the paths between them.

use std::collections::BTreeMap;
use std::path::Path;

use farwrite_model::plan::{MOST_ORDERED_SITES, MOST_RING_SITES};
use serde::Deserialize;
use toml::{Spanned, Table, Value};

use crate::exit::{Exit, Failure, OrExit};
use crate::link_file::{self, Description};
use crate::toml_error::in_line;
use farwrite_units::input::{at_line, read_text};

/// A longer file is a different file, given by mistake.
const MOST_BYTES: u64 = 1 << 20;
/// Most characters of a name.
const MOST_NAME: usize = 64;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    sites: Vec<Spanned<String>>,
    #[serde(default)]
    path: Vec<Spanned<Table>>,
}

/// The sites, and the paths by sender and receiver.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Sites {
    pub(super) names: Vec<String>,
    pub(super) paths: BTreeMap<(usize, usize), SitePath>,
}

/// A path from a site to another one.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SitePath {
    pub(super) name: Option<String>,
    pub(super) described: Description,
}

/// Reads the file.
///
/// # Errors
/// [`Exit::Files`] if it cannot be read, [`Exit::Usage`] if its content is invalid.
pub(super) fn read(file: &Path) -> Result<Sites, Failure> {
    let name = file.display();
    let text = read_text(file, MOST_BYTES).or_exit(Exit::Files, format_args!("reading {name}"))?;
    parse(&text).map_err(|why| Failure::new(Exit::Usage, format_args!("{name}: {why}")))
}

fn parse(text: &str) -> Result<Sites, String> {
    let file: File = toml::from_str(text).map_err(|error| in_line(text, &error))?;
    let mut sites = Sites::default();
    for site in file.sites {
        let at = site.span().start;
        sites
            .add(site.into_inner())
            .map_err(|why| at_line(text, at, &why))?;
    }
    if !(2..=MOST_RING_SITES).contains(&sites.names.len()) {
        let count = sites.names.len();
        return Err(format!(
            "sites has {count}: a ring has 2 to {MOST_RING_SITES} sites"
        ));
    }
    for path in file.path {
        let at = path.span().start;
        sites
            .add_path(path.into_inner())
            .map_err(|why| at_line(text, at, &why))?;
    }
    sites.check_paths()?;
    Ok(sites)
}

impl Sites {
    fn add(&mut self, name: String) -> Result<(), String> {
        if self.names.contains(&name) {
            return Err(format!("the site {name:?} is there twice"));
        }
        self.names.push(checked_name(name)?);
        Ok(())
    }

    fn add_path(&mut self, mut path: Table) -> Result<(), String> {
        let pairs = match (path.remove("ends"), path.remove("from"), path.remove("to")) {
            (Some(Value::Array(ends)), None, None) if ends.len() == 2 => {
                let pair = (self.site("ends", &ends[0])?, self.site("ends", &ends[1])?);
                vec![pair, (pair.1, pair.0)]
            }
            (None, Some(from), Some(to)) => {
                vec![(self.site("from", &from)?, self.site("to", &to)?)]
            }
            _ => {
                return Err("a path has ends = [\"ONE\", \"OTHER\"] for both directions, or from and to for one".to_owned());
            }
        };
        let (from, to) = pairs[0];
        let place = format!("the path from {} to {}", self.names[from], self.names[to]);
        if from == to {
            return Err(format!("{place} leads to itself: name two sites"));
        }
        let name = match path.remove("name") {
            None => None,
            Some(Value::String(name)) => Some(checked_name(name)?),
            Some(other) => return Err(format!("{place}: name = {other}: want text in quotes")),
        };
        let described = link_file::of_table(path).map_err(|why| format!("{place}: {why}"))?;
        for pair in pairs {
            let path = SitePath {
                name: name.clone(),
                described,
            };
            if self.paths.insert(pair, path).is_some() {
                let (from, to) = (&self.names[pair.0], &self.names[pair.1]);
                return Err(format!("the path from {from} to {to} is there twice"));
            }
        }
        Ok(())
    }

    /// The index of the site that a key names.
    fn site(&self, key: &str, name: &Value) -> Result<usize, String> {
        let found = self
            .names
            .iter()
            .position(|site| Some(site.as_str()) == name.as_str());
        found.ok_or_else(|| format!("{key} names {name}: that is none of the sites"))
    }

    /// Whether the plan compares orders with this step. Otherwise the order is that of the file.
    pub(super) fn needs(&self, (from, to): (usize, usize)) -> bool {
        let count = self.names.len();
        from != to && (count <= MOST_ORDERED_SITES || to == (from + 1) % count)
    }

    fn check_paths(&self) -> Result<(), String> {
        let sites = 0..self.names.len();
        let mut pairs = sites
            .clone()
            .flat_map(|from| sites.clone().map(move |to| (from, to)));
        let is_missing =
            |pair: &(usize, usize)| self.needs(*pair) && !self.paths.contains_key(pair);
        let Some((from, to)) = pairs.find(is_missing) else {
            return Ok(());
        };
        let (from, to) = (&self.names[from], &self.names[to]);
        Err(format!(
            "no path from {from} to {to}: add a [[path]] with ends = [{from:?}, {to:?}], or with from = {from:?} \
             and to = {to:?}"
        ))
    }
}

fn checked_name(name: String) -> Result<String, String> {
    let fits = (1..=MOST_NAME).contains(&name.chars().count());
    match fits && !name.chars().any(char::is_control) {
        true => Ok(name),
        false => Err(format!(
            "the name {name:?}: want 1 to {MOST_NAME} characters that can be shown"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SITES: &str = "sites = [\"a\", \"b\", \"c\"]\n";

    fn path(ends: &str, more: &str) -> String {
        format!("[[path]]\n{ends}\nrate = \"1Gbit\"\nrtt = \"9ms\"\nloss_packet = 1e-4\n{more}\n")
    }

    #[test]
    fn paths_lead_in_both_directions_or_in_one() {
        let text = [
            SITES,
            &path("ends = [\"a\", \"b\"]", "name = \"north\""),
            &path("ends = [\"c\", \"a\"]", ""),
            &path("from = \"b\"\nto = \"c\"", "mtu = 1024"),
            &path("from = \"c\"\nto = \"b\"", ""),
        ];
        let sites = parse(&text.concat()).expect("valid");
        assert_eq!(sites.names, ["a", "b", "c"]);
        assert_eq!(sites.paths.len(), 6);
        assert_eq!(sites.paths[&(1, 0)].name.as_deref(), Some("north"));
        assert_eq!(sites.paths[&(0, 1)], sites.paths[&(1, 0)]);
        assert_eq!(sites.paths[&(1, 2)].described.mtu, Some(1024));
        assert_eq!(sites.paths[&(2, 1)].described.mtu, None);
    }

    #[test]
    fn above_eight_sites_the_ring_is_enough() {
        let names: Vec<String> = (0..9).map(|site| format!("s{site}")).collect();
        let mut text = format!("sites = {names:?}\n");
        for site in 0..9 {
            let ends = format!("from = \"s{site}\"\nto = \"s{}\"", (site + 1) % 9);
            text += &path(&ends, "");
        }
        assert_eq!(parse(&text).expect("valid").paths.len(), 9);
        let eight = text.replace(", \"s8\"]", "]").replace("\"s8\"", "\"s0\"");
        assert!(parse(&eight).is_err());
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        // Each line has a file, whose lines a bar divides, and the error.
        let cases = r#"
            sites = ["a"] => sites has 1: a ring has 2 to 64 sites
            sites = ["a", | "a"] => line 2: the site "a" is there twice
            sites = ["", "a"] => line 1: the name "": want 1 to 64
            SITES | site = 1 => line 2: unknown field `site`
            SITES | PATH | REST => no path from a to c: add a [[path]] with ends = ["a", "c"]
            SITES | [[path]] | ends = ["a", "a"] | REST => line 2: the path from a to a leads to itself
            SITES | [[path]] | ends = ["a", "x"] | REST => line 2: ends names "x": that is none of the sites
            SITES | [[path]] | from = "a" | REST => line 2: a path has ends
            SITES | PATH | REST | PATH | REST => line 7: the path from a to b is there twice
            SITES | PATH | rate = "0Gbit" | rtt = "9ms" | loss_packet = 1e-4 => line 2: the path from a to b: rate = "0Gbit": a rate lies in
            SITES | PATH | REST | bandwidth = 1 => the path from a to b: unknown field `bandwidth`
            SITES | PATH | rate = "1Gbit" | rtt = "9ms" | loss_packet = 1.5 => the path from a to b: loss_packet = 1.5: a loss lies in 0 to 0.99
            SITES | PATH | name = 1 | REST => name = 1: want text
        "#;
        let cases = cases.replace("SITES", SITES.trim());
        let cases = cases.replace("PATH", r#"[[path]] | ends = ["a", "b"]"#);
        let rest = r#"rate = "1Gbit" | rtt = "9ms" | loss_packet = 1e-4"#;
        for case in cases.replace("REST", rest).trim().lines() {
            let (text, told) = case.trim().split_once(" => ").expect("a case");
            let text = text.replace(" | ", "\n");
            let why = parse(&text).expect_err(&text);
            assert!(why.contains(told), "{told:?} is not in {why:?}");
            assert!(!why.contains('\n'), "{why:?}");
        }
    }
}
