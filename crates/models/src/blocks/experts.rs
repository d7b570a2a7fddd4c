//! Feed-forward networks of many experts of which a router chooses a few for each token, and those that all tokens share.

use pteron_ir::{Op, ValueId};
use pteron_tensor::DType;

use super::{Activation, Mlp, MlpKind, matrix, mlp, picked, product, stacked};
use crate::net::{literal, value};
use crate::{Form, ModelError, Net, Wanted};

/// Experts of one layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Experts {
    /// How many there are.
    pub count: usize,
    /// How many a token goes to.
    pub chosen: usize,
    /// Features inside each.
    pub inner: usize,
    /// What their gates go through.
    pub activation: Activation,
    /// Where gates are cut, and the features beside them too, to which 1 is added (gpt-oss).
    pub limit: Option<f32>,
    /// Whether their matrices have biases.
    pub biases: bool,
    /// How they are chosen.
    pub router: Router,
    /// Whether what goes in is weighed, and not what comes out (Llama 4).
    pub weighs_inputs: bool,
    /// What all tokens go through beside.
    pub shared: Option<Shared>,
}

/// How experts are chosen and weighed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Router {
    /// What makes scores of the router's products.
    pub scoring: Scoring,
    /// Whether those have a bias.
    pub bias: bool,
    /// Whether a stored number is added to each score for the choice alone.
    pub correction: bool,
    /// Groups that are chosen first.
    pub groups: Option<Groups>,
    /// What weights are divided by, where they are.
    pub divisor: Option<Divisor>,
    /// What weights are multiplied by.
    pub factor: f32,
}

/// What weights of experts are divided by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Divisor {
    /// Their sum, and so much more.
    Sum(f32),
    /// Their sum, or so much where that is larger (ERNIE 4.5).
    AtLeast(f32),
}

/// What makes scores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scoring {
    /// The softmax of all products.
    Softmax,
    /// The logistic function of each.
    Sigmoid,
    /// The softmax of the products that were chosen.
    SoftmaxOfChosen,
    /// The logistic function of each that was chosen.
    SigmoidOfChosen,
    /// Two experts: of each the share among those whose products are near it (Phi-3.5-MoE), by twice this part.
    Mixer(f32),
}

/// Groups of experts that are chosen before experts are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Groups {
    /// How many there are.
    pub count: usize,
    /// How many are chosen.
    pub chosen: usize,
    /// By what.
    pub by: GroupScore,
}

/// What a group is chosen by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupScore {
    /// Its best score.
    Best,
    /// The sum of its two best.
    BestTwo,
}

/// What all tokens go through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shared {
    /// Features inside.
    pub inner: usize,
    /// Whether it has a gate of one number.
    pub gated: bool,
    /// Whether its matrices have biases.
    pub biases: bool,
}

/// What experts make of `x`, `[1, T, hidden]`. Their weights are called `experts.gate_proj`, `experts.up_proj` and
/// `experts.down_proj`, one behind another; the router is `gate`.
pub fn experts(
    net: &mut Net,
    x: ValueId,
    name: &str,
    hidden: usize,
    of: &Experts,
) -> Result<ValueId, ModelError> {
    net.enter(name);
    let tokens = value(net.length());
    let rows = net.op(Op::Reshape { x, shape: vec![tokens, literal(hidden)] })?;
    let (weights, picks) = route(net, rows, name, hidden, of)?;
    let activations = net.activations();
    let weights = net.cast(weights, activations)?;
    let shape = vec![tokens, literal(of.chosen), literal(1), literal(1)];
    let weights = net.op(Op::Reshape { x: weights, shape })?;
    let mut inputs =
        net.op(Op::Reshape { x, shape: vec![tokens, literal(1), literal(1), literal(hidden)] })?;
    if of.weighs_inputs {
        inputs = net.multiply(inputs, weights)?;
    }
    let stack = Stack { name, of, picks };
    let gate = stack.project(net, inputs, "gate_proj", of.inner, hidden)?;
    let up = stack.project(net, inputs, "up_proj", of.inner, hidden)?;
    let inner = gated(net, gate, up, of)?;
    let mut out = stack.project(net, inner, "down_proj", hidden, of.inner)?;
    if !of.weighs_inputs {
        out = net.multiply(out, weights)?;
    }
    let out = net.op(Op::Sum { x: out, axes: Some(vec![1, 2]), keepdims: false })?;
    let out = net.op(Op::Reshape { x: out, shape: vec![literal(1), tokens, literal(hidden)] })?;
    match of.shared {
        Some(shared) => {
            let beside = shared_expert(net, x, name, hidden, of.activation, shared)?;
            net.add(out, beside)
        }
        None => Ok(out),
    }
}

/// The matrices of all experts, and which of them each token meets.
struct Stack<'a> {
    name: &'a str,
    of: &'a Experts,
    /// `[T, chosen]`.
    picks: ValueId,
}

impl Stack<'_> {
    fn project(
        &self,
        net: &mut Net,
        x: ValueId,
        which: &str,
        rows: usize,
        columns: usize,
    ) -> Result<ValueId, ModelError> {
        let module = format!("{}.experts.{which}", self.name);
        let weights = stacked(net, &format!("{module}.weight"), self.of.count, rows, columns)?;
        let y = picked(net, x, weights, self.picks)?;
        if !self.of.biases {
            return Ok(y);
        }
        let dtype = net.activations();
        let biases = net.floats(&format!("{module}.bias"), &[self.of.count, rows], dtype, 0.0)?;
        let biases = net.rows(biases, self.picks)?;
        let shape = vec![value(net.length()), literal(self.of.chosen), literal(1), literal(rows)];
        let biases = net.op(Op::Reshape { x: biases, shape })?;
        net.add(y, biases)
    }
}

fn gated(net: &mut Net, gate: ValueId, up: ValueId, of: &Experts) -> Result<ValueId, ModelError> {
    let Some(limit) = of.limit else {
        let gate = of.activation.apply(net, gate)?;
        return net.multiply(gate, up);
    };
    let dtype = net.dtype(gate).unwrap_or(DType::F32);
    let (least, most, one) = (net.scalar(-limit, dtype), net.scalar(limit, dtype), net.scalar(1.0, dtype));
    let gate = net.op(Op::Minimum { a: gate, b: most })?;
    let gate = of.activation.apply(net, gate)?;
    let up = net.op(Op::Clip { x: up, a_min: Some(least), a_max: Some(most) })?;
    let up = net.add(up, one)?;
    net.multiply(gate, up)
}

fn shared_expert(
    net: &mut Net,
    x: ValueId,
    name: &str,
    hidden: usize,
    activation: Activation,
    shared: Shared,
) -> Result<ValueId, ModelError> {
    let kind = MlpKind { biases: shared.biases, ..MlpKind::gated(shared.inner, activation) };
    let out = mlp(net, x, &Mlp { name: &format!("{name}.shared_expert"), hidden, kind })?;
    if !shared.gated {
        return Ok(out);
    }
    let gate = deciding(net, x, &format!("{name}.shared_expert_gate"), 1, hidden, false)?;
    let gate = net.op(Op::Sigmoid { x: gate })?;
    let dtype = net.activations();
    let gate = net.cast(gate, dtype)?;
    net.multiply(out, gate)
}

/// The product with a matrix that decides: in f32, and not packed unless the source has it so, because a small error would
/// send a token elsewhere, or let a state fade at another rate.
pub(super) fn deciding(
    net: &mut Net,
    x: ValueId,
    module: &str,
    rows: usize,
    columns: usize,
    has_bias: bool,
) -> Result<ValueId, ModelError> {
    let name = format!("{module}.weight");
    let shape = [rows, columns];
    let bias = |net: &mut Net| match has_bias {
        true => net.floats(&format!("{module}.bias"), &[rows], DType::F32, 0.0).map(Some),
        false => Ok(None),
    };
    if let Form::Packed(_) = net.source().form(Wanted::new(&name, &shape))? {
        let packed = matrix(net, &name, rows, columns)?;
        let bias = bias(net)?;
        let y = product(net, x, packed, bias)?;
        return net.cast(y, DType::F32);
    }
    let w = net.floats(&name, &shape, DType::F32, 0.0)?;
    let mat2 = net.op(Op::Transpose { x: w, perm: vec![1, 0] })?;
    let bias = bias(net)?;
    let mat1 = net.cast(x, DType::F32)?;
    net.op(Op::Addmm { mat1, mat2, bias, alpha: 1.0, beta: 1.0 })
}

/// Weights and numbers of the experts of each token, both `[T, chosen]`.
fn route(
    net: &mut Net,
    rows: ValueId,
    name: &str,
    hidden: usize,
    of: &Experts,
) -> Result<(ValueId, ValueId), ModelError> {
    let router = of.router;
    let logits = deciding(net, rows, &format!("{name}.gate"), of.count, hidden, router.bias)?;
    if let Scoring::Mixer(part) = router.scoring {
        return mixed(net, logits, part);
    }
    let scores = match router.scoring {
        Scoring::Softmax => net.op(Op::Softmax { x: logits, axis: -1, precise: true })?,
        Scoring::Sigmoid => net.op(Op::Sigmoid { x: logits })?,
        _ => logits,
    };
    let mut choice = scores;
    if router.correction {
        let name = format!("{name}.gate.e_score_correction_bias");
        let correction = net.floats(&name, &[of.count], DType::F32, 0.0)?;
        choice = net.add(choice, correction)?;
    }
    if let Some(groups) = router.groups {
        choice = of_best_groups(net, choice, of.count, groups)?;
    }
    let picks = best(net, choice, of.chosen)?;
    let mut weights = net.op(Op::TakeAlongAxis { x: scores, indices: picks, axis: 1 })?;
    weights = match router.scoring {
        Scoring::SoftmaxOfChosen => net.op(Op::Softmax { x: weights, axis: -1, precise: true })?,
        Scoring::SigmoidOfChosen => net.op(Op::Sigmoid { x: weights })?,
        _ => weights,
    };
    if let Some(divisor) = router.divisor {
        let mut sum = net.op(Op::Sum { x: weights, axes: Some(vec![1]), keepdims: true })?;
        match divisor {
            Divisor::Sum(more) if more > 0.0 => {
                let more = net.scalar(more, DType::F32);
                sum = net.add(sum, more)?;
            }
            Divisor::Sum(_) => {}
            Divisor::AtLeast(least) => {
                let least = net.scalar(least, DType::F32);
                sum = net.op(Op::Maximum { a: sum, b: least })?;
            }
        }
        weights = net.op(Op::Divide { a: weights, b: sum })?;
    }
    if router.factor != 1.0 {
        weights = net.scaled(weights, router.factor)?;
    }
    Ok((weights, picks))
}

/// Numbers of the so many largest of each row, the largest first.
fn best(net: &mut Net, x: ValueId, count: usize) -> Result<ValueId, ModelError> {
    let order = falling(net, x)?;
    net.op(Op::Slice { x: order, axis: literal(1), start: literal(0), stop: literal(count), step: 1 })
}

/// Numbers that sort each row, the largest first, and the first of equal ones before the others.
fn falling(net: &mut Net, x: ValueId) -> Result<ValueId, ModelError> {
    let turned = net.scaled(x, -1.0)?;
    net.op(Op::Argsort { x: turned, axis: 1 })
}

/// Scores of the groups that are chosen, minus infinity elsewhere.
fn of_best_groups(
    net: &mut Net,
    scores: ValueId,
    experts: usize,
    groups: Groups,
) -> Result<ValueId, ModelError> {
    let size = experts / groups.count.max(1);
    let tokens = value(net.length());
    let by_group = vec![tokens, literal(groups.count), literal(size)];
    let grouped = net.op(Op::Reshape { x: scores, shape: by_group })?;
    let of_groups = match groups.by {
        GroupScore::Best => net.op(Op::Max { x: grouped, axes: Some(vec![2]), keepdims: false })?,
        GroupScore::BestTwo => {
            let sorted = net.op(Op::Sort { x: grouped, axis: 2 })?;
            let (start, stop) = (literal(size.saturating_sub(2)), literal(size));
            let two = net.op(Op::Slice { x: sorted, axis: literal(2), start, stop, step: 1 })?;
            net.op(Op::Sum { x: two, axes: Some(vec![2]), keepdims: false })?
        }
    };
    let order = falling(net, of_groups)?;
    let ranks = net.op(Op::Argsort { x: order, axis: 1 })?;
    let ranks = net.cast(ranks, DType::I64)?;
    let border = net.scalar(groups.chosen as f32, DType::I64);
    let is_chosen = net.op(Op::Less { a: ranks, b: border })?;
    let is_chosen = net.op(Op::ExpandDims { x: is_chosen, axis: 2 })?;
    let nothing = net.scalar(f32::NEG_INFINITY, DType::F32);
    let left = net.op(Op::Where { condition: is_chosen, x: grouped, y: nothing })?;
    net.op(Op::Reshape { x: left, shape: vec![tokens, literal(experts)] })
}

/// The two best experts of each token, each weighed by its share among those whose products are near its own.
fn mixed(net: &mut Net, logits: ValueId, part: f32) -> Result<(ValueId, ValueId), ModelError> {
    let picks = best(net, logits, 2)?;
    let heights = net.op(Op::TakeAlongAxis { x: logits, indices: picks, axis: 1 })?;
    let axis = literal(1);
    let mut column = |at: usize| {
        net.op(Op::Slice { x: heights, axis, start: literal(at), stop: literal(at + 1), step: 1 })
    };
    let (first, second) = (column(0)?, column(1)?);
    let one = share(net, logits, logits, first, part)?;
    // The best one is no rival of the second. Equal products are told apart by their place.
    let order = falling(net, logits)?;
    let ranks = net.op(Op::Argsort { x: order, axis: 1 })?;
    let ranks = net.cast(ranks, DType::I64)?;
    let zero = net.scalar(0.0, DType::I64);
    let is_first = net.op(Op::Equal { a: ranks, b: zero })?;
    let nothing = net.scalar(f32::NEG_INFINITY, DType::F32);
    let others = net.op(Op::Where { condition: is_first, x: nothing, y: logits })?;
    let two = share(net, logits, others, second, part)?;
    let weights = net.op(Op::Concatenate { tensors: vec![one, two], axis: 1 })?;
    Ok((weights, picks))
}

/// `1 / sum(exp(x - height))` over the rivals that are near: those whose distance is at most twice `part` of the larger of their
/// magnitude and the height.
fn share(
    net: &mut Net,
    logits: ValueId,
    rivals: ValueId,
    height: ValueId,
    part: f32,
) -> Result<ValueId, ModelError> {
    let magnitude = net.op(Op::Abs { x: logits })?;
    let magnitude = net.op(Op::Maximum { a: magnitude, b: height })?;
    let distance = net.op(Op::Subtract { a: height, b: logits })?;
    let distance = net.op(Op::Divide { a: distance, b: magnitude })?;
    let border = net.scalar(2.0 * part, DType::F32);
    let is_far = net.op(Op::Greater { a: distance, b: border })?;
    let nothing = net.scalar(f32::NEG_INFINITY, DType::F32);
    let near = net.op(Op::Where { condition: is_far, x: nothing, y: rivals })?;
    let above = net.op(Op::Subtract { a: near, b: height })?;
    let sizes = net.op(Op::Exp { x: above })?;
    let sum = net.op(Op::Sum { x: sizes, axes: Some(vec![1]), keepdims: true })?;
    let one = net.scalar(1.0, DType::F32);
    net.op(Op::Divide { a: one, b: sum })
}
