//! What scenarios should come to, what languages say that they came to, and what differs.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use super::languages::Language;
use crate::error::{Doing, Error, Result};

/// A fact that is the same in all languages, whatever it is.
const ANY: &str = "*";

type Facts = BTreeMap<String, Value>;

#[derive(Deserialize)]
pub(super) struct Scenarios {
    scenarios: Vec<Scenario>,
}

#[derive(Deserialize)]
struct Scenario {
    name: String,
    given: Facts,
    outcome: Facts,
    /// By language, facts that it cannot have; one that lacks all of them has no such scenario.
    #[serde(default)]
    lacks: BTreeMap<String, Vec<String>>,
}

impl Scenario {
    fn has(&self, language: Language, fact: &str) -> bool {
        !self.lacks.get(language.name()).is_some_and(|lacks| lacks.iter().any(|lack| lack == fact))
    }
}

/// What a runner printed.
pub(super) struct Told(BTreeMap<String, Facts>);

#[derive(Deserialize)]
struct Line {
    name: String,
    facts: Facts,
}

impl Told {
    /// Every line of a runner is a scenario.
    pub(super) fn read(text: &str) -> Result<Told> {
        let mut all = BTreeMap::new();
        for line in text.lines().filter(|line| !line.is_empty()) {
            let read: Line =
                serde_json::from_str(line).map_err(|error| Error::message(format!("{error}: {line}")))?;
            all.insert(read.name, read.facts);
        }
        Ok(Told(all))
    }

    /// What a runner found of something.
    pub(super) fn fact(&self, name: &str, fact: &str) -> Option<&Value> {
        self.0.get(name)?.get(fact)
    }
}

impl Scenarios {
    pub(super) fn read(path: &Path) -> Result<Scenarios> {
        let text = fs::read_to_string(path).doing("read", path)?;
        serde_json::from_str(&text).map_err(|error| Error::content(path, error))
    }

    pub(super) fn count(&self) -> usize {
        self.scenarios.len()
    }

    /// What is given, as C sees it: a macro for each value.
    pub(super) fn as_header(&self) -> String {
        let mut text = String::new();
        for scenario in &self.scenarios {
            for (key, value) in &scenario.given {
                let name = format!("GIVEN_{}_{key}", scenario.name.replace(' ', "_"));
                let value = match value {
                    Value::Array(values) => {
                        let values: Vec<String> = values.iter().map(Value::to_string).collect();
                        format!("{{{}}}", values.join(", "))
                    }
                    value => value.to_string(),
                };
                text += &format!("#define {name} {value}\n");
            }
        }
        text
    }

    /// A line for each scenario and language, how many outcomes are as they should be, and how many there are.
    pub(super) fn judge(&self, told: &[(Language, Result<Told>)]) -> (Vec<String>, usize, usize) {
        let (mut lines, mut good, mut all) = (Vec::new(), 0, 0);
        for (language, told_here) in told {
            for scenario in &self.scenarios {
                if !scenario.outcome.keys().any(|fact| scenario.has(*language, fact)) {
                    continue;
                }
                all += 1;
                let wrong = match told_here {
                    Err(error) => vec![error.to_string()],
                    Ok(here) => match here.0.get(&scenario.name) {
                        None => vec!["it was not run".to_owned()],
                        Some(facts) => differences(scenario, *language, facts, told),
                    },
                };
                let verdict = if wrong.is_empty() { "ok".to_owned() } else { wrong.join("; ") };
                good += usize::from(wrong.is_empty());
                lines.push(format!("{:8} {:14} {verdict}", language.name(), scenario.name));
            }
        }
        (lines, good, all)
    }
}

fn differences(
    scenario: &Scenario,
    language: Language,
    facts: &Facts,
    told: &[(Language, Result<Told>)],
) -> Vec<String> {
    let mut wrong = Vec::new();
    for (fact, expected) in scenario.outcome.iter().filter(|(fact, _)| scenario.has(language, fact)) {
        let others = told.iter().filter_map(|(_, told)| told.as_ref().ok()?.0.get(&scenario.name)?.get(fact));
        let expected = if expected == ANY { others.into_iter().next().unwrap_or(expected) } else { expected };
        match facts.get(fact) {
            None => wrong.push(format!("`{fact}` is not told")),
            Some(found) if !same(found, expected) => {
                wrong.push(format!("`{fact}` is {found}, not {expected}"))
            }
            Some(_) => {}
        }
    }
    wrong
}

/// Whether two values are the same; languages write whole numbers with and without a point.
fn same(one: &Value, other: &Value) -> bool {
    match (one.as_f64(), other.as_f64()) {
        (Some(one), Some(other)) => one == other,
        _ => one == other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenarios() -> Scenarios {
        serde_json::from_str(
            r#"{"scenarios": [{"name": "a b", "given": {"text": "x\"y", "many": [1, 2]},
                "outcome": {"error": "Busy", "count": 1, "answer": "*"}, "lacks": {"c": ["count"]}}]}"#,
        )
        .unwrap()
    }

    fn line(facts: &str) -> Result<Told> {
        Told::read(&format!(r#"{{"name": "a b", "facts": {facts}}}"#))
    }

    #[test]
    fn facts_are_held_to_the_description_and_to_each_other() {
        let good = r#"{"error": "Busy", "count": 1.0, "answer": "é"}"#;
        let told = [
            (Language::Python, line(good)),
            (Language::C, line(r#"{"error": "Busy", "answer": "é"}"#)),
            (Language::Kotlin, line(r#"{"error": "Busy", "count": 1, "answer": "e"}"#)),
        ];
        let (lines, good, all) = scenarios().judge(&told);
        assert_eq!((good, all), (2, 3), "{lines:?}");
        assert!(lines[2].ends_with(r#"`answer` is "e", not "é""#), "{lines:?}");
    }

    #[test]
    fn what_was_not_told_or_not_run_is_wrong() {
        let told = [
            (Language::Python, line(r#"{"error": "Busy", "answer": "a"}"#)),
            (Language::Kotlin, Told::read("")),
            (Language::C, Err(Error::message("`cc` is not on this machine"))),
        ];
        let (lines, good, all) = scenarios().judge(&told);
        assert_eq!((good, all), (0, 3));
        for (line, end) in
            lines.iter().zip(["`count` is not told", "it was not run", "is not on this machine"])
        {
            assert!(line.ends_with(end), "{line}");
        }
        assert!(Told::read("no JSON").is_err());
    }

    #[test]
    fn what_is_given_becomes_macros() {
        assert_eq!(
            scenarios().as_header(),
            "#define GIVEN_a_b_many {1, 2}\n#define GIVEN_a_b_text \"x\\\"y\"\n"
        );
    }
}
