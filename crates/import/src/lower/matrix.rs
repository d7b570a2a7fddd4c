//! Matrix products.

use super::call::{Arg, Call, Int};
use super::context::{Lowerer, Outs, one};
use super::error::{Lowered, Refusal};
use super::quantised;
use super::registry::Table;
use pteron_ir::{Op, ValueId};

pub(super) const TABLE: Table = &[
    ("aten.linear.default", linear),
    ("aten.matmul.default", |l, call| one(product(l, call.tensor("self")?, call.tensor("other")?)?)),
    ("aten.mm.default", |l, call| one(product(l, call.tensor("self")?, call.tensor("mat2")?)?)),
    ("aten.bmm.default", |l, call| one(product(l, call.tensor("self")?, call.tensor("mat2")?)?)),
    ("aten.mv.default", |l, call| one(product(l, call.tensor("self")?, call.tensor("vec")?)?)),
    ("aten.dot.default", |l, call| one(product(l, call.tensor("self")?, call.tensor("tensor")?)?)),
    ("aten.addmm.default", |l, call| one(add_product(l, call, "mat1", "mat2")?)),
    ("aten.addmv.default", |l, call| one(add_product(l, call, "mat", "vec")?)),
    ("aten.baddbmm.default", |l, call| one(add_product(l, call, "batch1", "batch2")?)),
    ("aten.outer.default", |l, call| {
        let (a, b) = (call.tensor("self")?, call.tensor("vec2")?);
        let a = l.emit(Op::ExpandDims { x: a, axis: 1 })?;
        one(l.emit(Op::Multiply { a, b })?)
    }),
    ("aten.einsum.default", einsum),
];

/// The product of matrices, vectors or stacks of matrices.
pub(super) fn product(l: &mut Lowerer<'_>, mat1: ValueId, mat2: ValueId) -> Lowered<ValueId> {
    l.emit(Op::Addmm { mat1, mat2, bias: None, alpha: 1.0, beta: 1.0 })
}

fn linear(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let (x, bias) = (call.tensor("input")?, call.maybe_tensor("bias")?);
    if let Arg::Weight(weight) = call.raw("weight")? {
        return one(quantised::linear(l, weight, x, bias, call.result_dtype(0)?)?);
    }
    let weight = call.tensor("weight")?;
    if l.rank(weight)? == 1 {
        let found = product(l, x, weight)?;
        return match bias {
            Some(bias) => one(l.emit(Op::Add { a: found, b: bias })?),
            None => one(found),
        };
    }
    let mat2 = l.swapped(weight)?;
    one(l.emit(Op::Addmm { mat1: x, mat2, bias, alpha: 1.0, beta: 1.0 })?)
}

fn add_product(l: &mut Lowerer<'_>, call: &Call<'_>, left: &str, right: &str) -> Lowered<ValueId> {
    let (bias, mat1, mat2) = (call.tensor("self")?, call.tensor(left)?, call.tensor(right)?);
    let (alpha, beta) = (call.float("alpha", 1.0)? as f32, call.float("beta", 1.0)? as f32);
    l.emit(Op::Addmm { mat1, mat2, bias: Some(bias), alpha, beta })
}

/// Two operands whose letters are batch, rows, columns or summed; each is put in that order, multiplied, and the
/// result turned to the order that is asked for.
fn einsum(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let equation = call.text("equation", "")?.replace(' ', "");
    let operands = call.tensors("tensors")?;
    let (given, wanted) = match equation.split_once("->") {
        Some((given, wanted)) => (given.to_owned(), wanted.to_owned()),
        None => return Err(Refusal::because("an equation without a result")),
    };
    let terms: Vec<Vec<char>> = given.split(',').map(|term| term.chars().collect()).collect();
    let (&[a, b], [left, right]) = (operands.as_slice(), terms.as_slice()) else {
        return Err(Refusal::because(format!("the equation {equation:?}, which has not two operands")));
    };
    let wanted: Vec<char> = wanted.chars().collect();
    let repeated = |term: &[char]| term.iter().enumerate().any(|(at, letter)| term[..at].contains(letter));
    if equation.contains('.') || repeated(left) || repeated(right) || repeated(&wanted) {
        return Err(Refusal::because(format!("the equation {equation:?}")));
    }
    if left.len() != l.rank(a)? || right.len() != l.rank(b)? {
        return Err(Refusal::because(format!("the equation {equation:?} for operands of other ranks")));
    }
    let both = |letter: &&char| left.contains(letter) && right.contains(letter);
    let batch: Vec<char> = wanted.iter().filter(both).copied().collect();
    let summed: Vec<char> =
        left.iter().filter(|letter| right.contains(letter) && !wanted.contains(letter)).copied().collect();
    let rows: Vec<char> = left.iter().filter(|letter| !right.contains(letter)).copied().collect();
    let columns: Vec<char> = right.iter().filter(|letter| !left.contains(letter)).copied().collect();
    if rows.iter().chain(&columns).any(|letter| !wanted.contains(letter)) {
        return Err(Refusal::because(format!("the equation {equation:?}, which sums one operand alone")));
    }
    let mut sizes = std::collections::HashMap::new();
    for (term, value) in [(left, a), (right, b)] {
        for (axis, letter) in term.iter().enumerate() {
            sizes.insert(*letter, l.size(value, axis)?);
        }
    }
    let ordered = |l: &mut Lowerer<'_>, value, term: &[char], groups: [&[char]; 2]| -> Lowered<ValueId> {
        let order: Vec<char> = batch.iter().chain(groups[0]).chain(groups[1]).copied().collect();
        let perm: Vec<usize> =
            order.iter().filter_map(|letter| term.iter().position(|known| known == letter)).collect();
        let value = l.transpose(value, &perm)?;
        let mut shape: Vec<Int> = batch.iter().map(|letter| sizes[letter]).collect();
        for group in groups {
            let mut size = Int::Literal(1);
            for letter in group {
                size = l.multiply_ints(size, sizes[letter])?;
            }
            shape.push(size);
        }
        l.reshape(value, shape)
    };
    let mat1 = ordered(l, a, left, [&rows, &summed])?;
    let mat2 = ordered(l, b, right, [&summed, &columns])?;
    let found = product(l, mat1, mat2)?;
    let order: Vec<char> = batch.iter().chain(&rows).chain(&columns).copied().collect();
    let found = l.reshape(found, order.iter().map(|letter| sizes[letter]).collect())?;
    let perm: Vec<usize> =
        wanted.iter().filter_map(|letter| order.iter().position(|known| known == letter)).collect();
    one(l.transpose(found, &perm)?)
}
