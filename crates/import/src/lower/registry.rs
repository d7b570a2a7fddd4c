//! Which function lowers which operator: one table a family, one row an operator with its overload.

use super::call::Call;
use super::context::{Lowerer, Outs};
use super::error::Lowered;
use super::{
    activation, attention, binary, conv, create, experts, index, matrix, mlx, norm, pool, quantised,
    recurrent, reduce, sampling, scatter, shape, sort, symbolic, unary, views,
};
use std::collections::HashMap;
use std::sync::OnceLock;

/// Lowers one call; gives a value for each of the node's results, in order.
pub(crate) type Rule = fn(&mut Lowerer<'_>, &Call<'_>) -> Lowered<Outs>;

/// Rows of a family.
pub(crate) type Table = &'static [(&'static str, Rule)];

const FAMILIES: [Table; 21] = [
    activation::TABLE,
    attention::TABLE,
    binary::TABLE,
    conv::TABLE,
    create::TABLE,
    experts::TABLE,
    index::TABLE,
    matrix::TABLE,
    mlx::TABLE,
    norm::TABLE,
    pool::TABLE,
    quantised::TABLE,
    recurrent::TABLE,
    reduce::TABLE,
    sampling::TABLE,
    scatter::TABLE,
    shape::TABLE,
    sort::TABLE,
    symbolic::TABLE,
    unary::TABLE,
    views::TABLE,
];

/// The rule of an operator such as `aten.add.Tensor`.
pub(crate) fn find(operator: &str) -> Option<Rule> {
    static RULES: OnceLock<HashMap<&'static str, Rule>> = OnceLock::new();
    let rules = RULES.get_or_init(|| FAMILIES.iter().copied().flatten().copied().collect());
    rules.get(operator).copied()
}

/// Every operator that has a rule, in the order of the tables.
pub fn operators() -> impl Iterator<Item = &'static str> {
    FAMILIES.iter().copied().flatten().map(|row| row.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_operator_has_one_rule() {
        let mut seen = HashSet::new();
        for operator in operators() {
            assert!(seen.insert(operator), "{operator} is in two rows");
        }
    }
}
