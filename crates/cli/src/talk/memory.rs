//! What a model will need, before it is loaded: `--memory-limit` refuses what does not fit.

use crate::failure::Failure;
use crate::inspect::key_dtype;
use crate::output::size;
use pteron_format::Limits;
use pteron_runtime::{Options, Program};
use std::path::Path;

/// A number of bytes as people write it: `800M`, `2G`, `1.5GiB`, `1073741824`.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is no size; write it as 800M or 1.5G");
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1u64,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        "t" | "tb" | "tib" => 1 << 40,
        _ => return Err(wrong()),
    };
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let bytes = number * scale as f64;
    if bytes.is_finite() && bytes >= 1.0 { Ok(bytes as u64) } else { Err(wrong()) }
}

/// What a model takes at its largest, part by part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Need {
    weights: u64,
    caches: u64,
    run: u64,
}

impl Need {
    fn total(self) -> u64 {
        self.weights.saturating_add(self.caches).saturating_add(self.run)
    }
}

/// An error if the program needs more than the limit; nothing of its weights is read for the answer.
pub(crate) fn check(path: &Path, data: &[&Path], context: Option<usize>, limit: u64) -> Result<(), Failure> {
    // The reference backend packs nothing, so that the file is mapped and no more.
    // What it needs is told also where that is more than a limit.
    let options =
        Options { backend: Some("reference".to_owned()), limits: Limits::own(), ..Options::default() };
    let program = Program::open(path, data, &options)?;
    let need = need(&program, context)?;
    if need.total() <= limit {
        return Ok(());
    }
    let Need { weights, caches, run } = need;
    Err(Failure::new(format!(
        "{} needs {}: weights {}, caches {}, one run {}; the limit is {}",
        path.display(),
        size(need.total()),
        size(weights),
        size(caches),
        size(run),
        size(limit)
    ))
    .hint("a smaller or more strongly quantised model needs less, and so does a shorter context"))
}

fn need(program: &Program, context: Option<usize>) -> Result<Need, Failure> {
    let mut run = 0;
    for method in program.methods() {
        run = run.max(program.run_bytes(&method.name)?.unwrap_or(0));
    }
    let off_graph = program.cache_spec().filter(|_| program.needs_cache()).map_or(0, |spec| {
        let capacity = context.unwrap_or(spec.capacity);
        let element = spec.dtype.or_else(|| key_dtype(program)).map_or(4, |dtype| dtype.size());
        let layers = spec.layers.iter().map(|layer| {
            let slots = layer.window.map_or(capacity, |window| window + spec.max_write.unwrap_or(window));
            let cells = (layer.kv_heads * layer.head_dim).saturating_mul(slots.min(capacity));
            cells.saturating_mul(2 * element) as u64
        });
        layers.fold(0, u64::saturating_add)
    });
    let (stored, derived) = program.weights().bytes();
    let weights = stored.saturating_add(derived);
    Ok(Need { weights, caches: program.state_bytes().saturating_add(off_graph), run })
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        let cases = [
            ("1024", 1024),
            ("2k", 2048),
            ("1.5M", 3 << 19),
            ("2GiB", 2 << 30),
            ("3 gb", 3 << 30),
            ("1t", 1 << 40),
        ];
        for (text, bytes) in cases {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        for text in ["", "G", "-1G", "1e9", "nan", "0", "2X", "1.2.3M"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
