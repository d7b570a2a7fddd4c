//! `pteron list`: models that have a name, and which of them are here.

use crate::failure::{Answer, Failure};
use crate::home::{self, table};
use crate::output::{Align, Json, Output, Table, size};
use pteron::parts::{FORMAT, Home};
use pteron_registry::{Conversion, FileKind, Identity, Installed, Model, Platform, Sha256, Unused, Variant};
use serde::Serialize;

/// Show models that can be had by name, and which of them are here
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  pteron list
  pteron list --here
  pteron list --json | jq '.models[].name'")]
pub(crate) struct Arguments {
    /// Only what is here, or has been begun
    #[arg(long)]
    here: bool,
    /// Print one JSON object (shape: docs/json.md)
    #[arg(long)]
    json: bool,
}

/// What `--json` prints and the table is made from.
#[derive(Debug, Serialize)]
struct Report {
    folder: String,
    bytes: u64,
    free_bytes: Option<u64>,
    models: Vec<ModelRow>,
    /// Programs that were converted from other files.
    other_conversions: Vec<ConversionRow>,
    /// What `pteron rm --unused` removes.
    unused: Vec<UnusedRow>,
}

#[derive(Debug, Serialize)]
struct UnusedRow {
    what: String,
    why: String,
    bytes: u64,
}

#[derive(Debug, Serialize)]
struct ModelRow {
    name: String,
    aliases: Vec<String>,
    default: bool,
    /// Whether the registry has it; a model that is here and has no name any more is listed too.
    known: bool,
    description: String,
    licence: Option<String>,
    licence_url: Option<String>,
    variants: Vec<VariantRow>,
}

#[derive(Debug, Serialize)]
struct VariantRow {
    name: String,
    kind: FileKind,
    /// Empty: any.
    backends: Vec<String>,
    size: Option<u64>,
    sha256: Option<Sha256>,
    sources: Vec<String>,
    installed: Option<InstalledRow>,
    /// Whether it was fetched and is not whole any more.
    damaged: bool,
    /// Bytes of a download that was begun and not finished.
    partial_bytes: Option<u64>,
    converted: Vec<ConversionRow>,
}

#[derive(Debug, Serialize)]
struct InstalledRow {
    path: String,
    size: u64,
    sha256: Sha256,
    verified: bool,
    source: String,
}

#[derive(Debug, Serialize)]
struct ConversionRow {
    from: String,
    options: String,
    path: String,
    bytes: u64,
}

pub(crate) fn run(arguments: &Arguments, out: &mut Output) -> Result<Answer, Failure> {
    let home = home::open()?;
    let mut report = report(&home)?;
    if arguments.here {
        for model in &mut report.models {
            model.variants.retain(|variant| variant.installed.is_some() || variant.partial_bytes.is_some());
        }
        report.models.retain(|model| !model.variants.is_empty());
    }
    match arguments.json {
        true => out.json(&report, Json::Indented)?,
        false => render(&report, out)?,
    }
    Ok(Answer::Yes)
}

fn report(home: &Home) -> Result<Report, Failure> {
    let default = home.registry.default_model(&Platform::here())?;
    let mut installed = home.store.list()?;
    let mut partials = home.store.partials()?;
    let unused = home.store.unused(FORMAT)?;
    let is_used = |made: &Conversion| unused.iter().all(|unused| !made.path.starts_with(&unused.place));
    let mut conversions = home.store.conversions()?;
    conversions.retain(is_used);
    let mut models = Vec::new();
    for model in home.registry.models() {
        let mut variants = Vec::new();
        for variant in &model.variants {
            let is_it = |name: &str, form: &str| name == model.name && form == variant.name;
            let here = home.store.installed(variant)?;
            let damaged = home.store.is_damaged(variant)?;
            installed.retain(|other| !is_it(&other.model, &other.variant));
            let partial = partials.iter().position(|partial| is_it(&partial.model, &partial.variant));
            let partial_bytes = partial.map(|at| partials.remove(at).bytes);
            let converted = converted(home, here.as_ref(), &mut conversions)?;
            variants.push(VariantRow { damaged, ..VariantRow::new(variant, here, partial_bytes, converted) });
        }
        models.push(ModelRow::new(model, model.name == default.name, variants));
    }
    for here in installed {
        let converted = converted(home, Some(&here), &mut conversions)?;
        models.push(ModelRow::nameless(here, converted));
    }
    let other_conversions = conversions.into_iter().map(ConversionRow::new).collect();
    let store = &home.store;
    let (folder, bytes) = (store.root().display().to_string(), store.bytes());
    let row = |Unused { what, why, bytes, .. }| UnusedRow { what, why: why.to_string(), bytes };
    let (free_bytes, unused) = (store.free_bytes(), unused.into_iter().map(row).collect());
    Ok(Report { folder, bytes, free_bytes, models, other_conversions, unused })
}

/// What was made from a model; it is taken out of the list of all.
fn converted(
    home: &Home,
    here: Option<&Installed>,
    all: &mut Vec<Conversion>,
) -> Result<Vec<ConversionRow>, Failure> {
    let Some(here) = here else { return Ok(Vec::new()) };
    let own = home.store.conversions_of(&Identity::of_installed(here))?;
    let is_own = |made: &mut Conversion| own.iter().any(|own| own.path == made.path);
    Ok(all.extract_if(.., is_own).map(ConversionRow::new).collect())
}

impl ModelRow {
    fn new(model: &Model, default: bool, variants: Vec<VariantRow>) -> ModelRow {
        ModelRow {
            name: model.name.clone(),
            aliases: model.aliases.clone(),
            default,
            known: true,
            description: model.description.clone(),
            licence: Some(model.licence.clone()),
            licence_url: model.licence_url.clone(),
            variants,
        }
    }

    fn nameless(here: Installed, converted: Vec<ConversionRow>) -> ModelRow {
        let variant = VariantRow {
            name: here.variant.clone(),
            kind: here.record.kind,
            backends: Vec::new(),
            size: Some(here.record.size),
            sha256: Some(here.record.sha256),
            sources: vec![here.record.source.clone()],
            installed: Some(InstalledRow::new(&here)),
            damaged: false,
            partial_bytes: None,
            converted,
        };
        ModelRow {
            name: here.model,
            aliases: Vec::new(),
            default: false,
            known: false,
            description: String::new(),
            licence: None,
            licence_url: None,
            variants: vec![variant],
        }
    }
}

impl VariantRow {
    fn new(
        variant: &Variant,
        here: Option<Installed>,
        partial_bytes: Option<u64>,
        converted: Vec<ConversionRow>,
    ) -> VariantRow {
        VariantRow {
            name: variant.name.clone(),
            kind: variant.kind,
            backends: variant.backends.clone(),
            size: variant.size.or(here.as_ref().map(|here| here.record.size)),
            sha256: variant.sha256.or(here.as_ref().map(|here| here.record.sha256)),
            sources: variant.sources.iter().map(ToString::to_string).collect(),
            installed: here.as_ref().map(InstalledRow::new),
            damaged: false,
            partial_bytes,
            converted,
        }
    }
}

impl InstalledRow {
    fn new(here: &Installed) -> InstalledRow {
        let record = &here.record;
        InstalledRow {
            path: here.path.display().to_string(),
            size: record.size,
            sha256: record.sha256,
            verified: record.verified,
            source: record.source.clone(),
        }
    }
}

impl ConversionRow {
    fn new(made: Conversion) -> ConversionRow {
        let Conversion { path, from, options, bytes } = made;
        ConversionRow { from, options, path: path.display().to_string(), bytes }
    }
}

fn render(report: &Report, out: &mut Output) -> Result<(), Failure> {
    let mut rows = Vec::new();
    for model in &report.models {
        for variant in &model.variants {
            rows.push(table::Row {
                model: model.name.clone(),
                variant: variant.name.clone(),
                bytes: variant.size,
                licence: model.licence.clone(),
                backends: variant.backends.clone(),
                here: variant.installed.is_some(),
                damaged: variant.damaged,
                partial_bytes: variant.partial_bytes,
                converted_bytes: variant.converted.iter().map(|made| made.bytes).sum(),
            });
        }
    }
    out.line(table::models(&rows, out.columns()))?;
    let others = report.other_conversions.iter().map(|made| (made.from.as_str(), made.bytes));
    let others = table::conversions(others).render_within(2, out.columns());
    if !others.is_empty() {
        out.blank()?;
        out.line("converted from other files")?;
        out.line(others)?;
    }
    let mut unused = Table::new(&[Align::Left, Align::Right, Align::Left]);
    for row in &report.unused {
        unused.row([&row.what, &size(row.bytes), &row.why]);
    }
    let unused = unused.render_within(2, out.columns());
    if !unused.is_empty() {
        out.blank()?;
        out.line("no longer used (`pteron rm --unused` removes it)")?;
        out.line(unused)?;
    }
    out.blank()?;
    if let Some(model) = report.models.iter().find(|model| model.default) {
        out.line(format!("default: {}", model.name))?;
    }
    if rows.iter().any(|row| row.partial_bytes.is_some()) {
        out.line("`pteron pull NAME` goes on with what was fetched in part")?;
    }
    if rows.iter().any(|row| row.damaged) {
        out.line("`pteron pull NAME` fetches what is damaged again")?;
    }
    let free = report.free_bytes.map(|free| format!(", {} free", size(free))).unwrap_or_default();
    out.line(format!("{}: {}{free}", report.folder, size(report.bytes)))
}
