//! An adapter (LoRA) over the weights of a folder: two thin matrices for some modules, whose product, scaled, is added to what the
//! files hold; with magnitudes (DoRA), the rows of the sum are then brought to those lengths. It is applied as weights are read, so that
//! what is exported is one model.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::Path;

use pteron_models::WeightError;
use serde_json::Value;

use super::json;
use super::safetensors::{Stored, Tensors};
use super::weights::widen;
use crate::CheckpointError;

/// Larger than any configuration of an adapter.
const LARGEST_CONFIG: u64 = 1 << 20;
const CONFIG: &str = "adapter_config.json";
const WEIGHTS: &str = "adapter_model.safetensors";
/// What stands before the names of the model.
const PREFIXES: [&str; 2] = ["base_model.model.", ""];

/// What is added, by the name of the weight in the model's files.
pub(super) struct Adapter {
    factors: HashMap<String, Factor>,
}

struct Factor {
    columns: usize,
    rank: usize,
    /// `[rank, columns]`, scaled.
    down: Vec<f32>,
    /// `[rows, rank]`.
    up: Vec<f32>,
    /// What each row of the sum is multiplied with.
    stretch: Option<Vec<f32>>,
}

/// The ends of the names of what a module has: the two matrices, and magnitudes.
const PARTS: [(&str, usize); 7] = [
    (".lora_A.weight", 0),
    (".lora_B.weight", 1),
    (".lora_A.default.weight", 0),
    (".lora_B.default.weight", 1),
    (".lora_magnitude_vector", 2),
    (".lora_magnitude_vector.weight", 2),
    (".lora_magnitude_vector.default.weight", 2),
];

impl Adapter {
    /// Reads an adapter for a model whose weights are these; all that does not fit is named.
    pub(super) fn open(folder: &Path, model: &Tensors) -> Result<Adapter, CheckpointError> {
        let path = folder.join(CONFIG);
        if !path.is_file() {
            return Err(CheckpointError::NotACheckpoint {
                path: folder.to_owned(),
                problem: format!("it has no {CONFIG}; an adapter is a folder with {CONFIG} and {WEIGHTS}"),
            });
        }
        let config = json::read(&path, LARGEST_CONFIG)?;
        check(&config).map_err(|problem| CheckpointError::configuration(&path, problem))?;
        let tensors = Tensors::open_files(folder, &[WEIGHTS.to_owned()])?;
        let mut modules: BTreeMap<String, [Option<String>; 3]> = BTreeMap::new();
        let mut beyond = Vec::new();
        for name in tensors.names() {
            let part = PARTS.iter().find_map(|(end, part)| Some((*part, name.strip_suffix(end)?)));
            let Some((part, module)) = part else {
                beyond.push(format!("{name}: nothing that is added to a matrix"));
                continue;
            };
            let own = PREFIXES.iter().find_map(|prefix| module.strip_prefix(prefix)).unwrap_or(module);
            modules.entry(format!("{own}.weight")).or_default()[part] = Some(name.to_owned());
        }
        let mut factors = HashMap::new();
        for (weight, names) in modules {
            match factor(&tensors, model, &config, &weight, &names) {
                Ok(factor) => drop(factors.insert(weight, factor)),
                Err(problem) => beyond.push(problem),
            }
        }
        if factors.is_empty() && beyond.is_empty() {
            beyond.push("it changes nothing".to_owned());
        }
        if !beyond.is_empty() {
            beyond.sort_unstable();
            let problem = format!("the adapter does not fit the model: {}", beyond.join("; "));
            return Err(CheckpointError::file(&folder.join(WEIGHTS), problem));
        }
        Ok(Adapter { factors })
    }

    /// Whether something is added to a weight of the files.
    pub(super) fn changes(&self, stored_name: &str) -> bool {
        self.factors.contains_key(stored_name)
    }

    /// Adds to neighbouring elements of a weight of the files.
    pub(super) fn add(&self, stored_name: &str, elements: Range<usize>, out: &mut [f32]) {
        let Some(factor) = self.factors.get(stored_name) else { return };
        for (element, out) in elements.zip(out) {
            let (row, column) = (element / factor.columns, element % factor.columns);
            *out += factor.added(row, column);
            if let Some(stretch) = &factor.stretch {
                *out *= stretch[row];
            }
        }
    }
}

impl Factor {
    /// What is added to an element.
    fn added(&self, row: usize, column: usize) -> f32 {
        let up = &self.up[row * self.rank..(row + 1) * self.rank];
        let down = self.down[column..].iter().step_by(self.columns);
        up.iter().zip(down).map(|(up, down)| up * down).sum()
    }

    /// What brings each row of the sum to its magnitude.
    fn stretched_to(&self, magnitudes: &[f32], weight: &[f32]) -> Vec<f32> {
        let rows = weight.chunks(self.columns).enumerate().zip(magnitudes);
        rows.map(|((row, values), magnitude)| {
            let sum = |(column, value): (usize, &f32)| f64::from(value + self.added(row, column)).powi(2);
            let length = values.iter().enumerate().map(sum).sum::<f64>().sqrt();
            (f64::from(*magnitude) / length) as f32
        })
        .collect()
    }
}

/// What the configuration asks for beyond a product of two matrices.
fn check(config: &Value) -> Result<(), String> {
    let kind = config.get("peft_type").and_then(Value::as_str).unwrap_or("LORA");
    if kind != "LORA" {
        return Err(format!("adapters of type {kind} are not read; LORA is"));
    }
    for key in ["use_qalora", "lora_bias"] {
        if config.get(key) == Some(&Value::Bool(true)) {
            return Err(format!("`{key}` is not supported"));
        }
    }
    if config.get("fan_in_fan_out") == Some(&Value::Bool(true)) {
        return Err("`fan_in_fan_out` is not supported".to_owned());
    }
    let saved = config.get("modules_to_save").and_then(Value::as_array).filter(|modules| !modules.is_empty());
    if let Some(modules) = saved {
        return Err(format!(
            "`modules_to_save` replaces whole modules ({modules:?}), which is not supported"
        ));
    }
    match config.get("bias").and_then(Value::as_str) {
        None | Some("none") => Ok(()),
        Some(bias) => Err(format!("`bias` is {bias:?}; only \"none\" is supported")),
    }
}

/// What the product of a module is multiplied with; patterns of the configuration may say it for some.
fn scale(config: &Value, module: &str, rank: usize) -> Result<f32, String> {
    let pattern = |key: &str| -> Option<f64> {
        let patterns = config.get(key)?.as_object()?;
        let fits = |pattern: &String| module == pattern || module.ends_with(&format!(".{pattern}"));
        patterns.iter().find(|(pattern, _)| fits(pattern)).and_then(|(_, value)| value.as_f64())
    };
    let alpha = pattern("alpha_pattern").or_else(|| config.get("lora_alpha")?.as_f64());
    let alpha = alpha.ok_or_else(|| format!("`lora_alpha` is missing in {CONFIG}"))?;
    let told = pattern("rank_pattern").or_else(|| config.get("r")?.as_f64());
    if told.is_some_and(|told| told != rank as f64) {
        return Err(format!("{module}: its rank is {rank}, where {CONFIG} says {}", told.unwrap_or(0.0)));
    }
    let by = match config.get("use_rslora") {
        Some(Value::Bool(true)) => (rank as f64).sqrt(),
        _ => rank as f64,
    };
    Ok((alpha / by) as f32)
}

fn factor(
    tensors: &Tensors,
    model: &Tensors,
    config: &Value,
    weight: &str,
    names: &[Option<String>; 3],
) -> Result<Factor, String> {
    let module = weight.strip_suffix(".weight").unwrap_or(weight);
    let [Some(down), Some(up), magnitudes] = names else {
        return Err(format!("{module} has one of lora_A and lora_B, not both"));
    };
    let of = |name: &str| tensors.get(name).ok_or_else(|| format!("{name} is missing"));
    let (down_stored, up_stored) = (of(down)?, of(up)?);
    let (&[rank, columns], &[rows, other]) = (down_stored.shape.as_slice(), up_stored.shape.as_slice())
    else {
        return Err(format!("{module}: lora_A and lora_B are no matrices"));
    };
    let target = model.get(weight).ok_or_else(|| format!("the model has no {weight}"))?;
    if rank != other || rank == 0 || target.shape != [rows, columns] {
        return Err(format!(
            "{module}: lora_B {:?} by lora_A {:?} is not {:?}",
            up_stored.shape, down_stored.shape, target.shape
        ));
    }
    let scale = scale(config, module, rank)?;
    let read = |tensors: &Tensors, name: &str, stored: &Stored| -> Result<Vec<f32>, String> {
        let bytes = tensors.read_all(name, stored).map_err(|error: WeightError| error.to_string())?;
        widen(stored.dtype, &bytes).ok_or_else(|| format!("{name} is {}", stored.dtype))
    };
    let (mut down, up) = (read(tensors, down, down_stored)?, read(tensors, up, up_stored)?);
    down.iter_mut().for_each(|value| *value *= scale);
    let mut factor = Factor { columns, rank, down, up, stretch: None };
    let has_magnitudes = config.get("use_dora") == Some(&Value::Bool(true));
    match magnitudes {
        Some(_) if !has_magnitudes => {
            return Err(format!("{module} has magnitudes, where {CONFIG} does not say `use_dora`"));
        }
        None if has_magnitudes => return Err(format!("{module} has no lora_magnitude_vector")),
        None => {}
        Some(name) => {
            let stored = of(name)?;
            if stored.shape.iter().product::<usize>() != rows {
                return Err(format!(
                    "{module}: lora_magnitude_vector {:?} is not of {rows} rows",
                    stored.shape
                ));
            }
            let magnitudes = read(tensors, name, stored)?;
            factor.stretch = Some(factor.stretched_to(&magnitudes, &read(model, weight, target)?));
        }
    }
    Ok(factor)
}
