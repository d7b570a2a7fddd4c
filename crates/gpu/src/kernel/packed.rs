//! Packed rows as kernels see them: codes in words, a scale a group and, of affine ones, a bias (zero point); and the text that
//! makes numbers of them.

use super::source::Source;
use pteron_tensor::DType;
use pteron_tensor::quant::Mode;

/// Codes in rows of words with a scale a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Packed {
    /// What codes and scales stand for.
    pub mode: Mode,
    /// Of a code.
    pub bits: u32,
    /// Codes of a group.
    pub group: u32,
    /// Of scales, and of biases where there are any.
    pub dtype: DType,
}

/// Where the parts of packed rows are.
pub(super) struct Rows {
    pub(super) words: String,
    pub(super) groups: String,
    pub(super) scales: String,
    pub(super) biases: String,
}

impl Packed {
    /// Whether something is added to a code's multiple.
    pub(crate) fn is_biased(self) -> bool {
        self.mode == Mode::Affine
    }

    /// Whether codes are floats of four bits (e2m1).
    pub(super) fn is_e2m1(self) -> bool {
        matches!(self.mode, Mode::MxFp4 | Mode::NvFp4)
    }

    /// Whether codes, or twice what they stand for, are integers of 8 bits.
    pub(crate) fn fits_bytes(self) -> bool {
        self.is_biased() || self.is_e2m1()
    }

    /// Groups that so many codes side by side lie in.
    pub(super) fn groups_of(self, codes: u32) -> u32 {
        codes.div_ceil(self.group)
    }

    /// The next bindings: scales and biases of the matrix that is called so.
    pub(super) fn reads_scales(self, source: &mut Source, of: &str) {
        source.reads(&format!("scales{of}"), self.dtype);
        if self.is_biased() {
            source.reads(&format!("biases{of}"), self.dtype);
        }
    }

    /// The next bindings: words, scales and biases.
    pub(super) fn reads_all(self, source: &mut Source) {
        source.reads_words("w");
        self.reads_scales(source, "");
    }

    /// The scale of a group.
    pub(super) fn scale(self, of: &str, group: &str) -> String {
        let stored = format!("load_scales{of}({group})");
        match self.mode {
            Mode::Affine => stored,
            Mode::NvFp4 => format!("e4m3fn({stored})"),
            Mode::MxFp4 | Mode::MxFp8 => format!("e8m0({stored})"),
        }
    }

    /// The bias of a group; without one, nothing.
    pub(super) fn bias(self, of: &str, group: &str) -> String {
        if self.is_biased() { format!("load_biases{of}({group})") } else { "0.0".to_owned() }
    }

    /// What a code stands for before its scale; bits beyond its own are not looked at.
    pub(super) fn element(self, code: &str) -> String {
        match self.mode {
            Mode::Affine => format!("f32(({code}) & {}u)", (1u32 << self.bits) - 1),
            Mode::MxFp4 | Mode::NvFp4 => format!("e2m1({code})"),
            Mode::MxFp8 => format!("e4m3fn({code})"),
        }
    }

    /// A code as its number.
    pub(super) fn number(self, code: &str, scale: &str, bias: &str) -> String {
        let element = self.element(code);
        if self.is_biased() {
            format!("fma({element}, {scale}, {bias})")
        } else {
            format!("({element} * {scale})")
        }
    }

    /// Statements that give the number at a row and column of packed rows; the row is counted from `base`, and from the first scale.
    pub(super) fn number_at(
        self,
        (row, of_scales): (&str, &str),
        column: &str,
        base: &str,
        rows: &Rows,
    ) -> String {
        let bits = self.bits;
        let Rows { words, groups, scales, biases } = rows;
        let straddles = if 32 % bits == 0 {
            String::new()
        } else {
            format!("if shift + {bits}u > 32u {{ code |= w[word + 1u] << (32u - shift); }}\n")
        };
        let added = if self.is_biased() { format!(" + load_biases({biases} + g)") } else { String::new() };
        format!(
            "let bit = {column} * {bits}u;\nlet shift = bit & 31u;\n\
             let word = {base} + {row} * {words} + (bit >> 5u);\n\
             var code = w[word] >> shift;\n{straddles}\
             let g = {of_scales} * {groups} + {column} / {group}u;\n\
             return {element} * {scale}{added};\n",
            group = self.group,
            element = self.element("code"),
            scale = self.scale("", &format!("{scales} + g")),
        )
    }
}
