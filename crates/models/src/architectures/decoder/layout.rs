//! Where published files keep the weights that decoders ask for. Graphs know one set of names; families have others, keep
//! several matrices in one tensor, turn them on their side, or have a tensor for each expert. A layout says that as data, and a
//! place is what follows for one weight.

use crate::blocks::Delta;

/// How the files of a family call and keep weights.
#[derive(Debug, PartialEq, Eq)]
pub struct Layout {
    /// What published files have in place of `model.`, the likeliest first.
    pub prefixes: &'static [&'static str],
    /// What stands in place of `layers`.
    pub layers: &'static str,
    /// Modules with other names: as graphs know them, and as published. Those of layers, and those outside.
    pub modules: &'static [(&'static str, &'static str)],
    /// Modules that are kept together.
    pub fused: &'static [Fused],
    /// Whether matrices of layers are stored with their inputs as rows.
    pub transposed: bool,
    /// How experts are kept.
    pub experts: ExpertFiles,
}

/// Modules that are kept in one tensor.
#[derive(Debug, PartialEq, Eq)]
pub struct Fused {
    /// As graphs know them, in order.
    pub parts: &'static [&'static str],
    /// As published.
    pub published: &'static str,
    /// How their rows lie.
    pub fusion: Fusion,
}

/// How the rows of several modules lie in one tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fusion {
    /// Those of one behind those of another.
    Stacked,
    /// Queries, key and value of one key head, then those of the next.
    ByGroup,
    /// Queries, values and keys of a quarter of all heads, then those of the next quarter (CodeGen).
    ByQuarter,
    /// The rows of one head of the first, those of the second, then those of the next head.
    ByHead,
    /// Queries, keys and values of the delta rule, those of one behind those of another.
    Delta,
    /// Queries, key, values and gates, or two numbers for each value, of one key head of the delta rule, then those of the next.
    DeltaByHead,
}

/// How experts are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpertFiles {
    /// A tensor each: what stands before and behind the expert's number, by gate, up and down.
    Each(&'static str, [&'static str; 3]),
    /// All in two tensors, gates before the features beside them: names of both, and whether inputs are rows.
    Together(&'static str, &'static str, bool),
    /// The same with gates and features in turns, and with biases beside (gpt-oss).
    InTurns(&'static str, &'static str),
}

/// The prefixes of the text model, where a family has no others.
pub(super) const USUAL_PREFIXES: &[&str] =
    &["model.", "model.language_model.", "language_model.model.", "model.text_model.", "language_model.", ""];

/// What most families have.
pub(super) const USUAL: Layout = Layout {
    prefixes: USUAL_PREFIXES,
    layers: "layers",
    modules: &[],
    fused: &[],
    transposed: false,
    experts: ExpertFiles::Each("mlp.experts.", [".gate_proj", ".up_proj", ".down_proj"]),
};

/// Where one weight lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The tensor, with `model.` in front whatever the files have there; `{}` stands for the number of a part where each has a
    /// tensor of its own.
    pub tensor: String,
    /// How many parts there are, such as experts.
    pub parts: usize,
    /// Which rows of a part's matrix are meant; all of them without.
    pub rows: Option<Rows>,
    /// Whether the matrix is stored with its inputs as rows.
    pub transposed: bool,
}

/// Some rows of a matrix: row `i` is row `first + i / run * stride + i % run` of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    /// The first.
    pub first: usize,
    /// How many lie together.
    pub run: usize,
    /// From the first of a run to the first of the next.
    pub stride: usize,
    /// Rows that the stored matrix has.
    pub of: usize,
}

impl Place {
    /// A tensor of that name, as it is.
    pub fn named(tensor: impl Into<String>) -> Place {
        Place { tensor: tensor.into(), parts: 1, rows: None, transposed: false }
    }

    /// Whether each part has a tensor of its own.
    pub fn is_apart(&self) -> bool {
        self.tensor.contains("{}")
    }

    /// The tensor of a part.
    pub fn tensor_of(&self, part: usize) -> String {
        self.tensor.replace("{}", &part.to_string())
    }
}

/// Where all weights of a model lie.
#[derive(Clone, Debug)]
pub struct Places {
    layout: &'static Layout,
    /// Query heads, key heads and features of a head.
    heads: (usize, usize, usize),
    /// By layer: features inside, and of layers of experts their number and the features of what they share.
    inners: Vec<(usize, Option<(usize, usize)>)>,
    /// The delta rule of layers that have one.
    delta: Option<Delta>,
}

impl Places {
    /// Those of a layout and sizes.
    pub(crate) fn new(
        layout: &'static Layout,
        heads: (usize, usize, usize),
        inners: Vec<(usize, Option<(usize, usize)>)>,
    ) -> Places {
        Places { layout, heads, inners, delta: None }
    }

    /// The same of a model whose layers have that delta rule.
    pub(super) fn with_delta(self, delta: Option<Delta>) -> Places {
        Places { delta, ..self }
    }

    /// Every weight under its own name.
    pub fn usual() -> Places {
        Places::new(&USUAL, (1, 1, 1), Vec::new())
    }

    /// What published files have in place of `model.`, the likeliest first.
    pub fn prefixes(&self) -> &'static [&'static str] {
        self.layout.prefixes
    }

    /// The module of the token embedding, behind that.
    pub fn embedding(&self) -> &'static str {
        self.published("embed_tokens").unwrap_or("embed_tokens")
    }

    fn published(&self, module: &str) -> Option<&'static str> {
        self.layout.modules.iter().find(|(known, _)| *known == module).map(|&(_, published)| published)
    }

    /// Where a weight lies.
    pub fn place(&self, name: &str) -> Place {
        let Some(rest) = name.strip_prefix("model.") else { return Place::named(name) };
        let layered = rest.strip_prefix("layers.").and_then(|rest| rest.split_once('.'));
        let Some((number, path)) = layered else {
            let (module, kind) = rest.rsplit_once('.').unwrap_or((rest, ""));
            return Place::named(format!("model.{}.{kind}", self.published(module).unwrap_or(module)));
        };
        let (module, kind) = path.rsplit_once('.').unwrap_or((path, ""));
        let layer = format!("model.{}.{number}", self.layout.layers);
        // A tensor that is called otherwise as a whole.
        if let Some(published) = self.published(path) {
            return Place::named(format!("{layer}.{published}"));
        }
        let inner = number.parse().ok().and_then(|number: usize| self.inners.get(number).copied());
        if let (Some(which), Some((inner, Some((count, _))))) = (module.strip_prefix("mlp.experts."), inner) {
            return self.expert(&layer, which, kind, inner, count);
        }
        let inner = match (inner, module.starts_with("mlp.shared_expert.")) {
            (Some((_, Some((_, shared)))), true) => shared,
            (Some((inner, _)), _) => inner,
            (None, _) => 0,
        };
        let transposed = self.layout.transposed && kind == "weight" && is_matrix(module);
        for fused in self.layout.fused {
            if let Some(at) = fused.parts.iter().position(|part| *part == module) {
                let tensor = format!("{layer}.{}.{kind}", fused.published);
                let rows = Some(self.rows(fused, at, inner));
                return Place { tensor, parts: 1, rows, transposed };
            }
        }
        match self.published(module) {
            // Norms that each head has its own of.
            Some(published) if published.contains("{}") => {
                let parts = if module.ends_with("k_norm") { self.heads.1 } else { self.heads.0 };
                let tensor = format!("{layer}.{published}.{kind}");
                Place { tensor, parts, rows: None, transposed: false }
            }
            Some("") => Place { transposed, ..Place::named(format!("{layer}.{kind}")) },
            published => {
                let module = published.unwrap_or(module);
                // A path without a module is a number of the layer.
                let tensor = match kind {
                    "" => format!("{layer}.{module}"),
                    kind => format!("{layer}.{module}.{kind}"),
                };
                Place { transposed, ..Place::named(tensor) }
            }
        }
    }

    /// The rows of one of several modules in their tensor.
    fn rows(&self, fused: &Fused, at: usize, inner: usize) -> Rows {
        let (heads, kv_heads, head_dim) = self.heads;
        let attends = fused.parts.len() == 3;
        match (fused.fusion, attends) {
            (Fusion::ByHead, _) => {
                let (first, stride) = (at * head_dim, fused.parts.len() * head_dim);
                Rows { first, run: head_dim, stride, of: heads * stride }
            }
            (Fusion::Delta | Fusion::DeltaByHead, _) => self.delta_rows(fused, at),
            (Fusion::Stacked, true) => {
                let (q, kv) = (heads * head_dim, kv_heads * head_dim);
                let first = [0, q, q + kv][at.min(2)];
                let run = if at == 0 { q } else { kv };
                Rows { first, run, stride: run, of: q + 2 * kv }
            }
            (_, false) => {
                Rows { first: at * inner, run: inner, stride: inner, of: fused.parts.len() * inner }
            }
            (Fusion::ByQuarter, true) => {
                let run = heads / 4 * head_dim;
                let first = [0, 2 * run, run][at.min(2)];
                Rows { first, run, stride: 3 * run, of: 3 * heads * head_dim }
            }
            (Fusion::ByGroup, true) => {
                let shared = heads / kv_heads.max(1);
                let first = [0, shared, shared + 1][at.min(2)] * head_dim;
                let run = if at == 0 { shared * head_dim } else { head_dim };
                let stride = (shared + 2) * head_dim;
                Rows { first, run, stride, of: stride * kv_heads }
            }
        }
    }

    /// The rows of one of several modules of the delta rule.
    fn delta_rows(&self, fused: &Fused, at: usize) -> Rows {
        let Some(Delta { key_heads, value_heads, key_dim, value_dim, .. }) = self.delta else {
            return Rows { first: 0, run: 1, stride: 1, of: 1 };
        };
        let shared = value_heads / key_heads.max(1);
        let sizes = match fused.parts.len() {
            2 => vec![shared, shared],
            parts => [key_dim, key_dim, shared * value_dim, shared * value_dim][..parts.min(4)].to_vec(),
        };
        let (first, run) = (sizes[..at].iter().sum::<usize>(), sizes[at]);
        let stride = sizes.iter().sum::<usize>();
        match fused.fusion {
            Fusion::DeltaByHead => Rows { first, run, stride, of: key_heads * stride },
            _ => {
                let run = key_heads * run;
                Rows { first: key_heads * first, run, stride: run, of: key_heads * stride }
            }
        }
    }

    fn expert(&self, layer: &str, which: &str, kind: &str, inner: usize, parts: usize) -> Place {
        let at = match which {
            "gate_proj" => 0,
            "up_proj" => 1,
            _ => 2,
        };
        let halves = |first, run, stride| Some(Rows { first, run, stride, of: 2 * inner });
        match self.layout.experts {
            ExpertFiles::Each(before, modules) => {
                let tensor = format!("{layer}.{before}{{}}{}.{kind}", modules[at]);
                Place { tensor, parts, rows: None, transposed: false }
            }
            ExpertFiles::Together(inwards, outwards, transposed) => {
                let published = if at == 2 { outwards } else { inwards };
                let rows = if at == 2 { None } else { halves(at * inner, inner, inner) };
                Place { tensor: format!("{layer}.{published}"), parts, rows, transposed }
            }
            ExpertFiles::InTurns(inwards, outwards) => {
                let published = if at == 2 { outwards } else { inwards };
                let rows = if at == 2 { None } else { halves(at, 1, 2) };
                let suffix = if kind == "bias" { "_bias" } else { "" };
                let transposed = kind == "weight";
                Place { tensor: format!("{layer}.{published}{suffix}"), parts, rows, transposed }
            }
        }
    }
}

fn is_matrix(module: &str) -> bool {
    module.ends_with("_proj")
}
