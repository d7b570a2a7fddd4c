//! Template vectors: the text that a template gives for a conversation, or that it gives none.
//!
//! Cases come in several shapes, told apart by their fields; see [`run_template_cases`].

use super::{Report, VectorError, difference, list, read, read_json};
use pteron_template::{ChatTemplate, LocalTime, RenderInput, TemplateError};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Runs a folder as `make_vectors.py` writes it: `inputs.json`, one file a template, `hostile.json`.
///
/// # Errors
/// When a file cannot be read.
pub fn run_templates(folder: &Path) -> Result<Report, VectorError> {
    let mut report = Report::default();
    for file in list(folder)? {
        let is_json = file.extension().is_some_and(|extension| extension == "json");
        if is_json && file.file_name().is_some_and(|name| name != "inputs.json") {
            report.add(run_template_cases(&file, None)?);
        }
    }
    Ok(report)
}

/// Runs the cases of one file, of any of these shapes:
///
/// - `template` (source) and `cases` by input name, the inputs in `inputs.json` beside it or in its own `inputs`;
/// - `inputs` by name and `cases`, first by template and then by input name;
/// - `inputs` alone: every template of the folder that has cases for them;
/// - a list, or one object a line: each `template`, `input` (or the variables themselves) and what comes out.
///
/// A template is its source, or the name of a `.jinja` or `.json` file in `templates`, else beside the file. What
/// comes out is `text`, or `error`; a case without either is hostile and must fail.
///
/// # Errors
/// When the file cannot be read, or names a template or an input that is not there.
pub fn run_template_cases(file: &Path, templates: Option<&Path>) -> Result<Report, VectorError> {
    let beside = file.parent().unwrap_or(Path::new(""));
    let mut runner = Runner { file, folder: templates.unwrap_or(beside), setting: Setting::default() };
    let source = read(file)?;
    let cases = match serde_json::from_str(&source) {
        Ok(cases) => cases,
        Err(error) => {
            // Perhaps one object a line.
            let lines = source.lines().filter(|line| !line.trim().is_empty());
            let lines = lines.map(serde_json::from_str).collect::<Result<Vec<Value>, _>>();
            Value::Array(lines.map_err(|_| VectorError::malformed(file, error))?)
        }
    };
    let inputs = [runner.folder, beside]
        .map(|folder| folder.join("inputs.json"))
        .into_iter()
        .find(|path| path.is_file());
    if let Some(inputs) = inputs {
        runner.setting.add(&read_json(&inputs)?);
    }
    let mut report = Report::default();
    match &cases {
        Value::Array(cases) => {
            for (index, case) in cases.iter().enumerate() {
                runner.listed(index, case, &mut report)?;
            }
        }
        Value::Object(object) => runner.object(object, &mut report)?,
        _ => return Err(VectorError::malformed(file, "expected an object or a list of cases")),
    }
    Ok(report)
}

/// What all cases of a file share.
#[derive(Default)]
struct Setting {
    now: LocalTime,
    tokens: BTreeMap<String, String>,
    inputs: Map<String, Value>,
}

impl Setting {
    /// Takes over what an object of cases says.
    fn add(&mut self, object: &Value) {
        if let Some(now) = object.get("now").and_then(Value::as_str).and_then(LocalTime::parse) {
            self.now = now;
        }
        if let Some(tokens) = object.get("tokens").and_then(Value::as_object) {
            let tokens =
                tokens.iter().filter_map(|(name, token)| Some((name.clone(), token.as_str()?.to_owned())));
            self.tokens.extend(tokens);
        }
        if let Some(inputs) = object.get("inputs").and_then(Value::as_object) {
            self.inputs.extend(inputs.clone());
        }
    }

    /// The conversation that an object of variables describes.
    fn input(&self, variables: &Map<String, Value>) -> RenderInput {
        let mut flags = variables.clone();
        let mut take = |name: &str| flags.remove(name).unwrap_or(Value::Null);
        RenderInput {
            messages: take("messages"),
            tools: take("tools"),
            add_generation_prompt: take("add_generation_prompt").as_bool().unwrap_or(false),
            tokens: self.tokens.clone(),
            now: self.now,
            flags,
        }
    }
}

/// Fields of a listed case that are not variables of its template.
const CASE_FIELDS: [&str; 12] = [
    "name",
    "kind",
    "template",
    "input",
    "inputs",
    "text",
    "error",
    "message",
    "reference",
    "now",
    "tokens",
    "template_file",
];

struct Runner<'f> {
    file: &'f Path,
    folder: &'f Path,
    setting: Setting,
}

impl Runner<'_> {
    fn object(&mut self, object: &Map<String, Value>, report: &mut Report) -> Result<(), VectorError> {
        self.setting.add(&Value::Object(object.clone()));
        let cases = object.get("cases").and_then(Value::as_object);
        match (object.get("template").and_then(Value::as_str), cases, object.get("inputs")) {
            (Some(template), Some(cases), _) => {
                let name = self.file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                self.template(&name, &self.source(template)?, cases, report)
            }
            (None, Some(by_template), _) => {
                for (name, cases) in by_template {
                    let Value::Object(cases) = cases else {
                        return Err(VectorError::malformed(
                            self.file,
                            format!("the cases of `{name}` are no object"),
                        ));
                    };
                    self.template(name, &self.source(name)?, cases, report)?;
                }
                Ok(())
            }
            (None, None, Some(_)) => {
                for path in list(self.folder)? {
                    let is_json = path.extension().is_some_and(|extension| extension == "json");
                    if !is_json || path.file_name() == self.file.file_name() {
                        continue;
                    }
                    let Value::Object(object) = read_json(&path)? else { continue };
                    let template = object.get("template").and_then(Value::as_str);
                    if let (Some(template), Some(Value::Object(cases))) = (template, object.get("cases")) {
                        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                        self.template(&name, template, cases, report)?;
                    }
                }
                Ok(())
            }
            _ => Err(VectorError::malformed(self.file, "expected `template` and `cases`, or `inputs`")),
        }
    }

    fn template(
        &self,
        name: &str,
        source: &str,
        cases: &Map<String, Value>,
        report: &mut Report,
    ) -> Result<(), VectorError> {
        for (input, case) in cases {
            let Some(Value::Object(variables)) = self.setting.inputs.get(input) else {
                return Err(VectorError::malformed(self.file, format!("there is no input `{input}`")));
            };
            let outcome = check(source, &self.setting.input(variables), case);
            report.case(|| format!("templates/{name}/{input}"), outcome);
        }
        Ok(())
    }

    fn listed(&mut self, index: usize, case: &Value, report: &mut Report) -> Result<(), VectorError> {
        let malformed = |reason: &str| VectorError::malformed(self.file, format!("case {index}: {reason}"));
        let Value::Object(fields) = case else { return Err(malformed("not an object")) };
        let template = fields.get("template").or(fields.get("template_file")).and_then(Value::as_str);
        let source = self.source(template.ok_or_else(|| malformed("it has no template"))?)?;
        let hostile = !fields.contains_key("text") && !fields.contains_key("error");
        let variables = match fields.get("input") {
            Some(Value::Object(variables)) => variables.clone(),
            Some(Value::String(name)) => {
                self.named_input(name).ok_or_else(|| malformed("its input is not there"))?
            }
            Some(_) => return Err(malformed("its input is neither an object nor a name")),
            None if fields.contains_key("messages") => {
                let variables = fields.iter().filter(|(name, _)| !CASE_FIELDS.contains(&name.as_str()));
                variables.map(|(name, value)| (name.clone(), value.clone())).collect()
            }
            None => self.named_input("user").ok_or_else(|| malformed("it has no input"))?,
        };
        let mut setting =
            Setting { now: self.setting.now, tokens: self.setting.tokens.clone(), ..Setting::default() };
        setting.add(case);
        let input = setting.input(&variables);
        let outcome = match hostile {
            true => match render(&source, &input) {
                Ok(_) => Err("a hostile template gave a text".into()),
                Err(_) => Ok(()),
            },
            false => check(&source, &input, case),
        };
        let name =
            fields.get("name").and_then(Value::as_str).map_or_else(|| index.to_string(), str::to_owned);
        let stem = self.file.file_stem().unwrap_or_default().to_string_lossy();
        report.case(|| format!("templates/{stem}/{name}"), outcome);
        Ok(())
    }

    fn named_input(&self, name: &str) -> Option<Map<String, Value>> {
        self.setting.inputs.get(name)?.as_object().cloned()
    }

    /// The source of a template that is given by its text or by its name.
    fn source(&self, template: &str) -> Result<String, VectorError> {
        if template.contains(['{', '\n']) || template.len() > 200 {
            return Ok(template.to_owned());
        }
        let candidates = ["", ".jinja", ".json"].map(|end| PathBuf::from(format!("{template}{end}")));
        let Some(path) = candidates.iter().map(|name| self.folder.join(name)).find(|path| path.is_file())
        else {
            // A template without any tag is a template too.
            return Ok(template.to_owned());
        };
        if path.extension().is_some_and(|extension| extension == "json") {
            let object = read_json(&path)?;
            let source = object.get("template").and_then(Value::as_str);
            return source
                .map(str::to_owned)
                .ok_or_else(|| VectorError::malformed(&path, "it has no `template`"));
        }
        read(&path)
    }
}

fn render(source: &str, input: &RenderInput) -> Result<String, TemplateError> {
    ChatTemplate::new(source)?.render(input)
}

fn check(source: &str, input: &RenderInput, case: &Value) -> Result<(), String> {
    let rendered = render(source, input);
    let field = |name: &str| case.get(name).and_then(Value::as_str);
    match (field("text"), field("error"), rendered) {
        (Some(wanted), _, Ok(found)) if wanted == found => Ok(()),
        (Some(wanted), _, Ok(found)) => Err(difference(wanted, &found)),
        (Some(_), _, Err(error)) => Err(error.to_string()),
        // Where the reference itself stumbles, a text is as good as an error.
        (None, Some("engine"), _) => Ok(()),
        (None, Some(_), Ok(_)) => Err("wanted an error, found a text".into()),
        (None, Some(_), Err(error)) => match field("message") {
            Some(message) if !error.to_string().contains(message) => {
                Err(format!("wanted the error `{message}`, found `{error}`"))
            }
            _ => Ok(()),
        },
        (None, None, _) => Err("the case says neither `text` nor `error`".into()),
    }
}
