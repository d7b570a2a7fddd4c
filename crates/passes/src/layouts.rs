//! One layout for a whole graph of convolutions. The catalogue's convolutions have their channels last, the models that programs are
//! exported from second, so that there is a transpose on both sides of each. Here a transpose behind a convolution sinks
//! through what does not care where the axes are (element-wise ops, pads, slices, concatenations, reductions) until it meets
//! the one before the next convolution, and both are gone.
//!
//! Elements only move, so that results are the same to the last bit, but for sums and means over several axes, which add in
//! another order: backends, which call [`sink`] on what they load, leave those.

use crate::pattern::axis_of;
use crate::rewrite::{Site, rewrite};
use crate::{Pass, Remarks, Weights};
use pteron_ir::op::IntArg;
use pteron_ir::{Graph, Op, Ssa, ValueId};
use pteron_tensor::HostTensor;
use std::collections::HashSet;

/// The pass.
pub const PASS: Pass =
    Pass { name: "layouts", doc: "lets transposes between convolutions meet and cancel", run };

fn run(graph: &mut Graph, weights: &mut dyn Weights, remarks: &mut Remarks) {
    sink_with(graph, weights, remarks, Sums::Move);
}

/// No data at hand.
struct NoData;

impl Weights for NoData {
    fn get(&self, _: &str) -> Option<&HostTensor> {
        None
    }

    fn add(&mut self, _: &str, _: HostTensor) {}
}

/// Whether sums may add in another order.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sums {
    Move,
    Stay,
}

/// Sinks transposes where that changes no bit. Values keep their numbers, new ones stand behind them, and no constant comes or goes.
pub fn sink(graph: &mut Graph) {
    let mut convolves = false;
    graph.for_each_node(|node, _| convolves |= is_convolution(&node.op));
    if convolves {
        sink_with(graph, &mut NoData, &mut Remarks::default(), Sums::Stay);
    }
}

fn sink_with(graph: &mut Graph, weights: &mut dyn Weights, remarks: &mut Remarks, sums: Sums) {
    // What convolutions give, and what was made of that in their layout.
    let mut near = HashSet::new();
    rewrite(graph, weights, remarks, &mut |site, node| {
        let &[result] = node.results.as_slice() else { return None };
        let mut sinking = Sinking { site, near: &mut near, sums };
        match sinking.node(&node.op) {
            Some(made) => {
                sinking.site.took(PASS.name, node, 2);
                Some(vec![made])
            }
            None => {
                sinking.note(&node.op, result);
                None
            }
        }
    });
}

fn is_convolution(op: &Op<Ssa>) -> bool {
    matches!(
        op,
        Op::Conv1D { .. }
            | Op::Conv2D { .. }
            | Op::Conv3D { .. }
            | Op::ConvTranspose1D { .. }
            | Op::ConvTranspose2D { .. }
            | Op::ConvTranspose3D { .. }
    )
}

/// Whether an op gives each element from those at the same place.
#[rustfmt::skip]
fn is_elementwise(op: &Op<Ssa>) -> bool {
    matches!(
        op,
        Op::Abs { .. } | Op::Neg { .. } | Op::Square { .. } | Op::Sign { .. } | Op::Floor { .. } | Op::Ceil { .. }
            | Op::Round { .. } | Op::Gelu { .. } | Op::Silu { .. } | Op::Sigmoid { .. } | Op::Tanh { .. } | Op::Erf { .. }
            | Op::Exp { .. } | Op::Expm1 { .. } | Op::Log { .. } | Op::Log1p { .. } | Op::Sqrt { .. } | Op::Rsqrt { .. }
            | Op::Reciprocal { .. } | Op::AsType { .. } | Op::Clip { .. } | Op::Add { .. } | Op::Subtract { .. }
            | Op::Multiply { .. } | Op::Divide { .. } | Op::Power { .. } | Op::Maximum { .. } | Op::Minimum { .. }
            | Op::Less { .. } | Op::LessEqual { .. } | Op::Greater { .. } | Op::GreaterEqual { .. } | Op::Where { .. }
    )
}

/// A value as a transpose of another: axis `i` of the value is axis `perm[i]` of the other.
struct Turned {
    source: ValueId,
    perm: Vec<usize>,
}

struct Sinking<'s, 'g> {
    site: &'s mut Site<'g>,
    near: &'s mut HashSet<ValueId>,
    sums: Sums,
}

impl Sinking<'_, '_> {
    /// Remembers what is in the layout of convolutions.
    fn note(&mut self, op: &Op<Ssa>, result: ValueId) {
        let mut near = is_convolution(op);
        if is_elementwise(op) {
            op.for_each_tensor(|value| near |= self.near.contains(&value));
        }
        if near {
            self.near.insert(result);
        }
    }

    /// A transpose of something in the layout of convolutions.
    fn turned(&self, value: ValueId) -> Option<Turned> {
        let Op::Transpose { x, perm } = self.site.definition(value)? else { return None };
        let rank = perm.len();
        let perm = perm.iter().map(|&axis| axis_of(axis.into(), rank)).collect::<Option<Vec<_>>>()?;
        self.near.contains(x).then_some(Turned { source: *x, perm })
    }

    /// What stands for a node's result, if a transpose before it can go behind it.
    fn node(&mut self, op: &Op<Ssa>) -> Option<ValueId> {
        match op {
            Op::Transpose { x, perm } => self.cancelled(*x, perm),
            Op::Pad { x, pad_width, mode, constant_value } => {
                let turned = self.turned(*x)?;
                let mut moved = pad_width.clone();
                for (axis, &source) in turned.perm.iter().enumerate() {
                    for side in 0..2 {
                        *moved.get_mut(2 * source + side)? = *pad_width.get(2 * axis + side)?;
                    }
                }
                let (x, mode) = (turned.source, mode.clone());
                let made = Op::Pad { x, pad_width: moved, mode, constant_value: *constant_value };
                self.behind(made, &turned.perm)
            }
            Op::Slice { x, axis: IntArg::Literal(axis), start, stop, step } => {
                let turned = self.turned(*x)?;
                let axis = turned.perm[axis_of(*axis, turned.perm.len())?];
                let axis = IntArg::Literal(axis as i64);
                let made = Op::Slice { x: turned.source, axis, start: *start, stop: *stop, step: *step };
                self.behind(made, &turned.perm)
            }
            Op::Concatenate { tensors, axis } => {
                let parts: Vec<Turned> =
                    tensors.iter().map(|&value| self.turned(value)).collect::<Option<_>>()?;
                let perm = parts.first()?.perm.clone();
                if parts.iter().any(|part| part.perm != perm) {
                    return None;
                }
                let axis = perm[axis_of(i64::from(*axis), perm.len())?] as i32;
                let tensors = parts.iter().map(|part| part.source).collect();
                self.behind(Op::Concatenate { tensors, axis }, &perm)
            }
            Op::Mean { x, axes, keepdims } if self.sums == Sums::Move => {
                let keepdims = *keepdims;
                self.reduced(*x, axes.as_deref()?, keepdims, |x, axes| Op::Mean { x, axes, keepdims })
            }
            Op::Sum { x, axes, keepdims } if self.sums == Sums::Move => {
                let keepdims = *keepdims;
                self.reduced(*x, axes.as_deref()?, keepdims, |x, axes| Op::Sum { x, axes, keepdims })
            }
            Op::Max { x, axes, keepdims } => {
                let keepdims = *keepdims;
                self.reduced(*x, axes.as_deref()?, keepdims, |x, axes| Op::Max { x, axes, keepdims })
            }
            Op::Min { x, axes, keepdims } => {
                let keepdims = *keepdims;
                self.reduced(*x, axes.as_deref()?, keepdims, |x, axes| Op::Min { x, axes, keepdims })
            }
            Op::Reshape { x, shape } => self.reshaped(*x, shape),
            op if is_elementwise(op) => self.elementwise(op),
            _ => None,
        }
    }

    /// Two transposes of which one undoes the other.
    fn cancelled(&self, x: ValueId, second: &[i32]) -> Option<ValueId> {
        let Turned { source, perm } = self.turned(x)?;
        let back = |(at, &axis): (usize, &i32)| {
            axis_of(axis.into(), perm.len()).is_some_and(|axis| perm[axis] == at)
        };
        second.iter().enumerate().all(back).then_some(source)
    }

    /// Appends an op in the layout of convolutions, and the transpose behind it.
    fn behind(&mut self, op: Op<Ssa>, perm: &[usize]) -> Option<ValueId> {
        let made = self.site.append(op)?;
        self.near.insert(made);
        self.site.append(Op::Transpose { x: made, perm: perm.iter().map(|&axis| axis as i32).collect() })
    }

    fn elementwise(&mut self, op: &Op<Ssa>) -> Option<ValueId> {
        let mut operands = Vec::new();
        op.for_each_tensor(|value| operands.push(value));
        let perm = operands.iter().find_map(|&value| self.turned(value))?.perm;
        let moved: Vec<ValueId> =
            operands.iter().map(|&value| self.operand(value, &perm)).collect::<Option<_>>()?;
        let mut made = op.clone();
        let mut next = moved.into_iter();
        made.for_each_field_mut(|_, mut field| {
            field.for_each_tensor(&mut |value: &mut ValueId| *value = next.next().unwrap_or(*value));
        });
        self.behind(made, &perm)
    }

    /// An operand of an element-wise op in the source's layout.
    fn operand(&mut self, value: ValueId, perm: &[usize]) -> Option<ValueId> {
        if let Some(turned) = self.turned(value) {
            return (turned.perm == perm).then_some(turned.source);
        }
        let shape = self.site.tensor(value)?.known_shape()?;
        if shape.len() > perm.len() {
            return None;
        }
        if shape.iter().all(|&size| size == 1) {
            return Some(value);
        }
        let name = self.site.constant_name(value)?.to_owned();
        let lead = perm.len() - shape.len();
        let mut sizes = vec![1; perm.len()];
        let mut wide = Vec::new();
        for (axis, &size) in shape.iter().enumerate() {
            sizes[perm[lead + axis]] = size;
            if size != 1 {
                wide.push(perm[lead + axis]);
            }
        }
        if wide.is_sorted() {
            // The elements stay in their order.
            let Some(data) = self.site.data(value) else {
                let shape = sizes.iter().map(|&size| IntArg::Literal(size as i64)).collect();
                return self.site.append(Op::Reshape { x: value, shape });
            };
            let moved = data.clone().reshaped(sizes).ok()?;
            return Some(self.site.add_constant(&name, "channels_last", moved));
        }
        let mut back = vec![0; perm.len()];
        perm.iter().enumerate().for_each(|(at, &axis)| back[axis] = at as i32);
        let mut x = value;
        for _ in 0..lead {
            x = self.site.append(Op::ExpandDims { x, axis: 0 })?;
        }
        self.site.append(Op::Transpose { x, perm: back })
    }

    fn reduced(
        &mut self,
        x: ValueId,
        axes: &[i32],
        keepdims: bool,
        op: impl FnOnce(ValueId, Option<Vec<i32>>) -> Op<Ssa>,
    ) -> Option<ValueId> {
        let Turned { source, perm } = self.turned(x)?;
        let gone = axes.iter().map(|&axis| axis_of(axis.into(), perm.len())).collect::<Option<Vec<_>>>()?;
        let moved = gone.iter().map(|&axis| perm[axis] as i32).collect();
        if keepdims {
            return self.behind(op(source, Some(moved)), &perm);
        }
        // The axes that are left, as they lie.
        let left: Vec<usize> =
            (0..perm.len()).filter(|axis| !gone.contains(axis)).map(|axis| perm[axis]).collect();
        let made = self.site.append(op(source, Some(moved)))?;
        self.near.insert(made);
        if left.is_sorted() {
            return Some(made);
        }
        let rank = |axis: usize| left.iter().filter(|&&other| other < axis).count() as i32;
        self.site.append(Op::Transpose { x: made, perm: left.iter().map(|&axis| rank(axis)).collect() })
    }

    /// A reshape that sees the elements in the source's order, or that joins the axes between batch and channels.
    fn reshaped(&mut self, x: ValueId, shape: &[IntArg<ValueId>]) -> Option<ValueId> {
        let Turned { source, perm } = self.turned(x)?;
        let sizes = self.site.tensor(source)?.known_shape()?;
        let wide: Vec<usize> = perm.iter().copied().filter(|&axis| sizes[axis] != 1).collect();
        if wide.is_sorted() {
            return self.site.append(Op::Reshape { x: source, shape: shape.to_vec() });
        }
        let rank = perm.len();
        let second = perm[0] == 0 && perm[1] == rank - 1 && perm[2..].is_sorted();
        let (inner, channels) = (sizes[1..rank - 1].iter().product::<usize>(), sizes[rank - 1]);
        let known = |at: usize| match shape.get(at) {
            Some(IntArg::Literal(size)) => usize::try_from(*size).ok(),
            _ => None,
        };
        let last = matches!(shape.last(), Some(IntArg::Literal(-1))) || known(2) == Some(inner);
        if !second || shape.len() != 3 || known(0) != Some(sizes[0]) || known(1) != Some(channels) || !last {
            return None;
        }
        let shape = [sizes[0], inner, channels].map(|size| IntArg::Literal(size as i64));
        self.behind(Op::Reshape { x: source, shape: shape.to_vec() }, &[0, 2, 1])
    }
}
