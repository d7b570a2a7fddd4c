//! What rounding costs by itself: a program in which every product with packed weights reads its input rounded to 8 bits in
//! groups, as `--precision fast` may round it, and everything else is as it was.
//!
//! How far such a rounding carries depends on a model's depth, its weights and what lies between, so that no one number is
//! right for all. Run exactly, this program tells what a sound `fast` may cost.

use crate::rewrite;
use pteron_format::Limits;
use pteron_format::pte::Pte;
use pteron_ir::op::{FloatArg, IntArg};
use pteron_ir::{Module, Op, Ssa, ValueId};
use pteron_passes::{Remarks, Site, Weights, rewrite::rewrite as rewrite_graph};
use pteron_tensor::{Bytes, DType, HostTensor};

/// Values that share a scale, where a row can be cut into so many.
const GROUPS: [i64; 2] = [32, 16];

/// The largest number of 8 bits.
const LARGEST: f64 = 127.0;

/// Keeps groups of zeros from being divided by zero.
const LEAST_SCALE: f64 = 1e-35;

/// The program with inputs of products rounded.
pub(super) fn rounded(bytes: Bytes, limits: &Limits) -> Result<Bytes, String> {
    let pte = Pte::read(bytes, limits).map_err(|error| error.to_string())?;
    let rewritten = rewrite::changed(&pte, limits, &mut round_inputs)?;
    let mut file = Vec::new();
    rewritten.write(&mut file).map_err(|error| error.to_string())?;
    Ok(Bytes::copy_of(&file))
}

/// No constant is asked for or added.
struct NoWeights;

impl Weights for NoWeights {
    fn get(&self, _: &str) -> Option<&HostTensor> {
        None
    }

    fn add(&mut self, _: &str, _: HostTensor) {}
}

fn round_inputs(module: &mut Module) {
    rewrite_graph(&mut module.main, &mut NoWeights, &mut Remarks::default(), &mut |site, node| {
        let mut op = node.op.clone();
        let Op::QuantizedMatmul { x, .. } = &mut op else { return None };
        *x = round(site, *x)?;
        Some(vec![site.append(op)?])
    });
}

/// `x`, each group of its rows in multiples of its largest magnitude's 127th part.
fn round(site: &mut Site<'_>, x: ValueId) -> Option<ValueId> {
    let ty = site.tensor(x)?.clone();
    let (row, outer) = ty.shape.split_last()?;
    let row = row.as_known()?;
    let group = GROUPS.into_iter().find(|group| row % group == 0)?;
    let mut shape: Vec<IntArg<ValueId>> = Vec::new();
    for (axis, dim) in outer.iter().enumerate() {
        shape.push(match dim.as_known() {
            Some(size) => IntArg::Literal(size),
            None => IntArg::Value(site.append(Op::SymSize { a: x, dim: axis as i32 })?),
        });
    }
    let of_rows = [&shape[..], &[IntArg::Literal(row)]].concat();
    let of_groups = [&shape[..], &[IntArg::Literal(row / group), IntArg::Literal(group)]].concat();
    let number = |value: f64| -> Op<Ssa> {
        Op::Full { shape: Vec::new(), v: FloatArg::Literal(value), scalar_type: DType::F32 }
    };
    let wide = site.append(Op::AsType { x, scalar_type: DType::F32 })?;
    let values = site.append(Op::Reshape { x: wide, shape: of_groups })?;
    let magnitudes = site.append(Op::Abs { x: values })?;
    let largest = site.append(Op::Max { x: magnitudes, axes: Some(vec![-1]), keepdims: true })?;
    let steps = site.append(number(LARGEST))?;
    let scale = site.append(Op::Divide { a: largest, b: steps })?;
    let least = site.append(number(LEAST_SCALE))?;
    let scale = site.append(Op::Maximum { a: scale, b: least })?;
    let multiples = site.append(Op::Divide { a: values, b: scale })?;
    let multiples = site.append(Op::Round { x: multiples, decimals: 0 })?;
    let values = site.append(Op::Multiply { a: multiples, b: scale })?;
    let rows = site.append(Op::Reshape { x: values, shape: of_rows })?;
    site.append(Op::AsType { x: rows, scalar_type: ty.dtype })
}
