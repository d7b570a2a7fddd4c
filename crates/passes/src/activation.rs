//! Activations that models spell out: SiLU as `x * sigmoid(x)`, GELU by the error function or by the tanh that is close
//! to it.

use crate::rewrite::{Site, rewrite};
use crate::{Pass, Remarks, Weights};
use pteron_ir::{Graph, Node, Op, ValueId};
use pteron_tensor::DType;
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, SQRT_2};

/// The pass.
pub const PASS: Pass = Pass { name: "activation", doc: "makes spelled-out SiLU and GELU one op", run };

fn run(graph: &mut Graph, weights: &mut dyn Weights, remarks: &mut Remarks) {
    rewrite(graph, weights, remarks, &mut rule);
}

fn rule(site: &mut Site<'_>, node: &Node) -> Option<Vec<ValueId>> {
    let Op::Multiply { a, b } = node.op else { return None };
    let result = *node.results.first()?;
    let (made, nodes) = silu(site, a, b).or_else(|| silu(site, b, a)).or_else(|| gelu(site, result, a, b))?;
    site.took(PASS.name, node, nodes);
    Some(vec![made])
}

fn silu(site: &mut Site<'_>, x: ValueId, gate: ValueId) -> Option<(ValueId, usize)> {
    match *site.definition(gate)? {
        Op::Sigmoid { x: gated } if gated == x => Some((site.append(Op::Silu { x })?, 2)),
        _ => None,
    }
}

/// `0.5 * x * (1 + erf(x / sqrt(2)))` or `0.5 * x * (1 + tanh(...))`, the factors in any order.
fn gelu(site: &mut Site<'_>, result: ValueId, a: ValueId, b: ValueId) -> Option<(ValueId, usize)> {
    let mut parts = Vec::new();
    let nodes = 1 + product_parts(site, a, &mut parts) + product_parts(site, b, &mut parts);
    let numbers: f64 = parts.iter().filter_map(|&part| site.number(part)).product();
    let others: Vec<ValueId> = parts.into_iter().filter(|&part| site.number(part).is_none()).collect();
    let &[first, second] = others.as_slice() else { return None };
    if !near(numbers, 0.5, slack(site, result)) {
        return None;
    }
    let (x, approximate, inner) = gate(site, first, second).or_else(|| gate(site, second, first))?;
    if !site.same_type(x, result) {
        return None;
    }
    let made = site.append(Op::Gelu { x, approximate: approximate.to_owned() })?;
    Some((made, nodes + inner))
}

/// Factors of a product whose parts nobody else uses; how many nodes it has.
fn product_parts(site: &Site<'_>, value: ValueId, parts: &mut Vec<ValueId>) -> usize {
    match site.definition(value) {
        Some(&Op::Multiply { a, b }) if site.uses(value) == 1 && parts.len() < 4 => {
            1 + product_parts(site, a, parts) + product_parts(site, b, parts)
        }
        _ => {
            parts.push(value);
            0
        }
    }
}

/// Whether a value is `1 + f(x)` with one of GELU's functions; which, and how many nodes it has.
fn gate(site: &Site<'_>, x: ValueId, value: ValueId) -> Option<(ValueId, &'static str, usize)> {
    let inner = site.terms(value).into_iter().flatten().find(|(_, one)| site.number(*one) == Some(1.0))?.0;
    match *site.definition(inner)? {
        Op::Erf { x: scaled } if is_scaled(site, scaled, x, FRAC_1_SQRT_2) => Some((x, "none", 3)),
        Op::Tanh { x: scaled } if is_tanh_argument(site, scaled, x) => Some((x, "tanh", 7)),
        _ => None,
    }
}

/// How far a number of the source model may be off by having been rounded to the activations' dtype.
fn slack(site: &Site<'_>, x: ValueId) -> f64 {
    match site.dtype(x) {
        Some(DType::BF16) => 4e-3,
        Some(DType::F16) => 5e-4,
        _ => 1e-6,
    }
}

fn near(a: f64, b: f64, slack: f64) -> bool {
    (a - b).abs() <= b.abs() * slack
}

/// Whether a value is `x * by`.
fn is_scaled(site: &Site<'_>, value: ValueId, x: ValueId, by: f64) -> bool {
    let product = site.factors(value).into_iter().flatten();
    let mut product = product.filter(|(of, _)| *of == x).filter_map(|(_, number)| site.number(number));
    let quotient = match site.definition(value) {
        Some(Op::Divide { a, b }) if *a == x => site.number(*b),
        _ => None,
    };
    let slack = slack(site, x);
    product.any(|number| near(number, by, slack))
        || quotient.is_some_and(|number| near(number, 1.0 / by, slack))
}

/// `sqrt(2 / pi) * (x + 0.044715 * x³)`
fn is_tanh_argument(site: &Site<'_>, value: ValueId, x: ValueId) -> bool {
    let (root, slack) = (FRAC_2_SQRT_PI / SQRT_2, slack(site, x));
    let is_sum = |sum: ValueId| {
        site.terms(sum).into_iter().flatten().any(|(linear, cubic)| {
            linear == x
                && site.factors(cubic).into_iter().flatten().any(|(cube, number)| {
                    is_cube(site, cube, x)
                        && site.number(number).is_some_and(|number| near(number, 0.044_715, slack))
                })
        })
    };
    let found = site.factors(value).into_iter().flatten();
    let mut found =
        found.filter(|(_, number)| site.number(*number).is_some_and(|number| near(number, root, slack)));
    found.any(|(sum, _)| is_sum(sum))
}

fn is_cube(site: &Site<'_>, value: ValueId, x: ValueId) -> bool {
    let by_power =
        matches!(site.definition(value), Some(Op::Power { a, b }) if *a == x && site.number(*b) == Some(3.0));
    let is_square = |value: ValueId| match site.definition(value) {
        Some(Op::Square { x: of }) => *of == x,
        Some(Op::Multiply { a, b }) => *a == x && *b == x,
        Some(Op::Power { a, b }) => *a == x && site.number(*b) == Some(2.0),
        _ => false,
    };
    by_power
        || site.factors(value).into_iter().flatten().any(|(square, other)| other == x && is_square(square))
}
