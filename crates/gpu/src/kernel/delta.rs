//! The gated delta rule: every row of a head's state goes through all tokens by itself. Sixteen threads share a row, so that a group
//! has four of them, and keep it in registers; a token is two sums over those threads.
//!
//! Parameters: tokens, heads of keys and of values, features of a value, blocks of rows of a head, groups in all, the first word of
//! what comes out and of the next state, the first element of queries, keys, values, what is left of the state, rates and the state.

use super::source::{Source, THREADS, param};
use pteron_tensor::DType;

/// Threads of a row.
const LANES: u32 = 16;

/// Rows of a group.
pub(crate) const DELTA_ROWS: u32 = THREADS / LANES;

/// The most features of a key: what a thread keeps of a row is an array.
pub(crate) const MOST_KEY_FEATURES: usize = 512;

/// What a kernel is made of. What it gives is f32.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Delta {
    /// Of queries, keys, values, what is left of the state, rates and the state.
    pub inputs: [DType; 6],
    /// Features of a key.
    pub key_features: u32,
}

impl Delta {
    pub(super) fn text(&self) -> String {
        let mut source = Source::new();
        source.writes("out");
        for (name, dtype) in ["q", "k", "v", "g", "r", "s"].iter().zip(self.inputs) {
            source.reads(name, dtype);
        }
        let features = self.key_features;
        let own = features.div_ceil(LANES);
        source.push(&format!(
            "var<workgroup> met: array<f32, {THREADS}>;\nvar<workgroup> seen: array<f32, {THREADS}>;\n\
             var<private> row: array<f32, {own}>;"
        ));
        let each = |body: &str| {
            format!(
                "for (var i = 0u; i < {own}u; i++) {{ let f = i * {LANES}u + lane;\nif f < {features}u {{ {body} }} }}\n"
            )
        };
        let sum = |name: &str| {
            format!(
                "var all_{name} = 0.0;\nfor (var i = 0u; i < {LANES}u; i++) {{ all_{name} += {name}[first + i]; }}\n"
            )
        };
        source.main(&format!(
            "if group >= {groups} {{ return; }}\n\
             let head = group / {blocks};\nlet text = head / {heads};\nlet own_head = head % {heads};\n\
             let key_head = own_head * {key_heads} / {heads};\n\
             let number = (group % {blocks}) * {DELTA_ROWS}u + thread / {LANES}u;\n\
             let lane = thread % {LANES}u;\nlet first = thread - lane;\nlet live = number < {values};\n\
             let place = (head * {values} + min(number, {values} - 1u)) * {features}u;\n\
             {load}\
             for (var token = 0u; token < {tokens}; token++) {{\n\
             let now = text * {tokens} + token;\n\
             let key = (now * {key_heads} + key_head) * {features}u;\n\
             let gate = now * {heads} + own_head;\n\
             let left = load_g({g} + gate);\n\
             var part = 0.0;\n{fade}met[thread] = part;\nworkgroupBarrier();\n{met}\
             let value = gate * {values} + min(number, {values} - 1u);\n\
             let change = (load_v({v} + value) - all_met) * load_r({r} + gate);\n\
             part = 0.0;\n{learn}seen[thread] = part;\nworkgroupBarrier();\n{seen}\
             if lane == 0u && live {{ out[{y} + value] = bitcast<u32>(all_seen); }}\n}}\n\
             if live {{\n{store}}}",
            groups = param(5),
            blocks = param(4),
            heads = param(2),
            key_heads = param(1),
            values = param(3),
            tokens = param(0),
            g = param(11),
            v = param(10),
            r = param(12),
            y = param(6),
            load = each(&format!("row[i] = load_s({} + place + f);", param(13))),
            fade = each(&format!("row[i] *= left; part += row[i] * load_k({} + key + f);", param(9))),
            met = sum("met"),
            learn = each(&format!(
                "row[i] += change * load_k({} + key + f); part += row[i] * load_q({} + key + f);",
                param(9),
                param(8)
            )),
            seen = sum("seen"),
            store = each(&format!("out[{} + place + f] = bitcast<u32>(row[i]);", param(7))),
        ));
        source.finish()
    }
}
