//! RMS norms of rows without gaps, with the residual sum before them: a group of threads a row, a word at a time.
//!
//! Parameters: rows, features, first word of the normed rows and of the sums, first element of the operands, first factor,
//! epsilon.

use super::source::{Source, encoded, float, over_group, over_group_call, param, per_word, rounded};
use pteron_tensor::DType;

/// What a kernel is made of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Norm {
    /// Of the operands, and of their sum.
    pub input: DType,
    /// Of the normed rows.
    pub out: DType,
    /// Of a factor by feature.
    pub weight: Option<DType>,
    /// Whether two operands are added first, and their sum is given too.
    pub adds: bool,
    /// Threads of a group.
    pub threads: u32,
    /// Whether sums run over subgroups.
    pub subgroups: bool,
}

impl Norm {
    pub(super) fn text(&self) -> String {
        let mut source = Source::new();
        source.writes("out");
        source.reads("a", self.input);
        if self.adds {
            source.reads("b", self.input);
        }
        if let Some(dtype) = self.weight {
            source.reads("w", dtype);
        }
        source.push(&over_group(self.threads, self.subgroups));
        let (features, threads) = (param(1), self.threads);
        let value = match self.adds {
            true => rounded(self.input, &format!("load_a({} + e) + load_b({} + e)", param(4), param(5))),
            false => format!("load_a({} + e)", param(4)),
        };
        source.push(&format!("fn item(e: u32) -> f32 {{ return {value}; }}"));
        let factor = self.weight.map_or(String::new(), |_| format!(" * load_w({} + f)", param(6)));
        let word = |dtype: DType, first: &str, value: &str| {
            let (per, width) = (per_word(dtype), 32 / per_word(dtype));
            format!(
                "for (var word = thread; word * {per}u < {features}; word += {threads}u) {{\nvar bits = 0u;\n\
                 for (var j = 0u; j < {per}u; j++) {{\nlet f = word * {per}u + j;\nlet x = item(row + f);\n\
                 bits |= {} << (j * {width}u);\n}}\nout[{first} + row / {per}u + word] = bits;\n}}\n",
                encoded(dtype, value)
            )
        };
        let sums = if self.adds { word(self.input, &param(3), "x") } else { String::new() };
        let total = over_group_call("group_sum", self.subgroups, "part");
        let body = format!(
            "let row = group * {features};\nvar part = 0.0;\n\
             for (var f = thread; f < {features}; f += {threads}u) {{ let x = item(row + f); part += x * x; }}\n\
             let scale = 1.0 / sqrt({total} / f32({features}) + {eps});\n{sums}{normed}",
            eps = float(7),
            normed = word(self.out, &param(2), &format!("(x * scale{factor})")),
        );
        source.main_of(threads, self.subgroups, &body);
        source.finish()
    }
}
