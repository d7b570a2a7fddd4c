//! Factors and sums by channel behind a convolution become part of it: a batch norm in inference is one of each, so that
//! `(conv(x, w) + b) * s + t` is `conv(x, w * s) + (b * s + t)`.

use crate::rewrite::{Site, rewrite};
use crate::{Pass, Remarks, Weights, numbers};
use pteron_ir::{Graph, Node, Op, Ssa, ValueId};
use pteron_tensor::DType;

/// The pass.
pub const PASS: Pass =
    Pass { name: "batch-norm", doc: "folds factors and sums by channel into convolutions", run };

fn run(graph: &mut Graph, weights: &mut dyn Weights, remarks: &mut Remarks) {
    rewrite(graph, weights, remarks, &mut rule);
}

fn rule(site: &mut Site<'_>, node: &Node) -> Option<Vec<ValueId>> {
    let made = match node.op {
        Op::Multiply { a, b } => scaled(site, a, b).or_else(|| scaled(site, b, a))?,
        Op::Add { a, b } => shifted(site, a, b).or_else(|| shifted(site, b, a))?,
        _ => return None,
    };
    site.took(PASS.name, node, 2);
    Some(vec![made])
}

/// Of a convolution: its filters, and the same op with others.
fn filters(op: &Op<Ssa>) -> Option<(ValueId, impl FnOnce(ValueId) -> Op<Ssa> + use<>)> {
    let (Op::Conv1D { w, .. }
    | Op::Conv2D { w, .. }
    | Op::Conv3D { w, .. }
    | Op::ConvTranspose1D { w, .. }
    | Op::ConvTranspose2D { w, .. }
    | Op::ConvTranspose3D { w, .. }) = op
    else {
        return None;
    };
    let (old, mut op) = (*w, op.clone());
    Some((old, move |new: ValueId| {
        op.for_each_field_mut(|_, mut field| {
            field.for_each_tensor(&mut |value: &mut ValueId| {
                if *value == old {
                    *value = new;
                }
            });
        });
        op
    }))
}

/// A constant of f32 that has a number for each channel of a tensor, or one for all of them.
fn by_channel(site: &Site<'_>, of: ValueId, value: ValueId) -> Option<(String, Vec<f64>)> {
    let channels = usize::try_from(site.features(of)?).ok()?;
    let rank = site.rank(of)?;
    let data = site.data(value).filter(|data| data.dtype() == DType::F32)?;
    let fits = match data.shape() {
        [outer @ .., last] => outer.iter().all(|&size| size == 1) && (*last == channels || *last == 1),
        [] => true,
    };
    if !fits || data.rank() > rank || site.dtype(of) != Some(DType::F32) {
        return None;
    }
    let mut numbers = numbers::floats(data)?;
    if numbers.len() == 1 {
        numbers.resize(channels, numbers[0]);
    }
    Some((site.constant_name(value)?.to_owned(), numbers))
}

/// The bias behind a convolution, and what stands before it.
fn biased(site: &Site<'_>, value: ValueId) -> (ValueId, Option<(String, Vec<f64>)>) {
    let found = site.terms(value).into_iter().flatten().find_map(|(x, bias)| {
        let is_convolution = filters(site.definition(x)?).is_some();
        (is_convolution && site.uses(x) == 1).then_some((x, by_channel(site, x, bias)?))
    });
    found.map_or((value, None), |(x, bias)| (x, Some(bias)))
}

fn scaled(site: &mut Site<'_>, x: ValueId, factor: ValueId) -> Option<ValueId> {
    let (convolution, bias) = biased(site, x);
    let (w, with) = filters(site.definition(convolution)?)?;
    let (_, factors) = by_channel(site, x, factor)?;
    if site.uses(x) != 1 || site.uses(convolution) != 1 || site.uses(w) != 1 {
        return None;
    }
    let data = site.data(w).filter(|data| data.dtype() == DType::F32)?;
    let (shape, name) = (data.shape().to_vec(), site.constant_name(w)?.to_owned());
    let each = data.len() / factors.len().max(1);
    if shape.first() != Some(&factors.len()) || each == 0 {
        return None;
    }
    let filters = numbers::floats(data)?;
    let product: Vec<f64> =
        filters.chunks(each).zip(&factors).flat_map(|(f, s)| f.iter().map(move |w| w * s)).collect();
    let w = numbers::tensor(DType::F32, &shape, &product)?;
    let w = site.add_constant(&name, "scaled", w);
    let made = site.append(with(w))?;
    let Some((name, bias)) = bias else { return Some(made) };
    let bias: Vec<f64> = bias.iter().zip(&factors).map(|(b, s)| b * s).collect();
    let bias = numbers::tensor(DType::F32, &[bias.len()], &bias)?;
    let bias = site.add_constant(&name, "scaled", bias);
    site.append(Op::Add { a: made, b: bias })
}

/// Two biases in a row.
fn shifted(site: &mut Site<'_>, x: ValueId, shift: ValueId) -> Option<ValueId> {
    let (convolution, bias) = biased(site, x);
    let (name, bias) = bias?;
    let (_, shifts) = by_channel(site, x, shift)?;
    if site.uses(x) != 1 {
        return None;
    }
    let sum: Vec<f64> = bias.iter().zip(&shifts).map(|(b, t)| b + t).collect();
    let sum = numbers::tensor(DType::F32, &[sum.len()], &sum)?;
    let sum = site.add_constant(&name, "shifted", sum);
    site.append(Op::Add { a: convolution, b: sum })
}
