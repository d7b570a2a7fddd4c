//! Ops that compute each element from the elements at the same place: chains of loops over blocks.

use super::lowering::{Compiled, Numbered, Planner};
use crate::fault::invalid;
use crate::run::Run;
use pteron_ir::{Node, Op, Ssa, ValueId};
use pteron_kernels::elementwise::{BinaryOp, Chain, ChainBuilder, UnaryOp, Value};
use pteron_kernels::path::Path;
use pteron_kernels::view::{View, ViewMut};
use pteron_plan::{Layout, Types};
use pteron_runtime::NodeError;
use pteron_tensor::{DType, promote};
use std::collections::HashMap;

/// The most operands of one chain.
pub(super) const MOST_OPERANDS: usize = 8;

/// What a node does to each element.
enum Element {
    /// In the result's dtype.
    Unary(UnaryOp, ValueId),
    Round(ValueId, i32),
    Cast(ValueId),
    /// In the result's dtype.
    Binary(BinaryOp, ValueId, ValueId),
    /// In the dtype that both operands promote to.
    Compare(BinaryOp, ValueId, ValueId),
    Select(ValueId, ValueId, ValueId),
    Clip(ValueId, Option<ValueId>, Option<ValueId>),
}

fn element(op: &Op<Ssa>) -> Option<Element> {
    use Element::{Binary, Compare, Unary};
    Some(match op {
        Op::Abs { x } => Unary(UnaryOp::Abs, *x),
        Op::Neg { x } => Unary(UnaryOp::Neg, *x),
        Op::Square { x } => Unary(UnaryOp::Square, *x),
        Op::Sign { x } => Unary(UnaryOp::Sign, *x),
        Op::Floor { x } => Unary(UnaryOp::Floor, *x),
        Op::Ceil { x } => Unary(UnaryOp::Ceil, *x),
        Op::Trunc { x } => Unary(UnaryOp::Trunc, *x),
        Op::Round { x, decimals } => Element::Round(*x, *decimals),
        Op::Gelu { x, approximate } if approximate == "tanh" => Unary(UnaryOp::GeluTanh, *x),
        Op::Gelu { x, .. } => Unary(UnaryOp::Gelu, *x),
        Op::Silu { x } => Unary(UnaryOp::Silu, *x),
        Op::Sigmoid { x } => Unary(UnaryOp::Sigmoid, *x),
        Op::Erf { x } => Unary(UnaryOp::Erf, *x),
        Op::Exp { x } => Unary(UnaryOp::Exp, *x),
        Op::Expm1 { x } => Unary(UnaryOp::Expm1, *x),
        Op::Log { x } => Unary(UnaryOp::Log, *x),
        Op::Log2 { x } => Unary(UnaryOp::Log2, *x),
        Op::Log10 { x } => Unary(UnaryOp::Log10, *x),
        Op::Log1p { x } => Unary(UnaryOp::Log1p, *x),
        Op::Sqrt { x } => Unary(UnaryOp::Sqrt, *x),
        Op::Rsqrt { x } => Unary(UnaryOp::Rsqrt, *x),
        Op::Reciprocal { x } => Unary(UnaryOp::Reciprocal, *x),
        Op::Sin { x } => Unary(UnaryOp::Sin, *x),
        Op::Cos { x } => Unary(UnaryOp::Cos, *x),
        Op::Tan { x } => Unary(UnaryOp::Tan, *x),
        Op::Arcsin { x } => Unary(UnaryOp::Arcsin, *x),
        Op::Arccos { x } => Unary(UnaryOp::Arccos, *x),
        Op::Arctan { x } => Unary(UnaryOp::Arctan, *x),
        Op::Sinh { x } => Unary(UnaryOp::Sinh, *x),
        Op::Cosh { x } => Unary(UnaryOp::Cosh, *x),
        Op::Tanh { x } => Unary(UnaryOp::Tanh, *x),
        Op::Arcsinh { x } => Unary(UnaryOp::Arcsinh, *x),
        Op::Arccosh { x } => Unary(UnaryOp::Arccosh, *x),
        Op::Arctanh { x } => Unary(UnaryOp::Arctanh, *x),
        Op::LogicalNot { x } => Unary(UnaryOp::LogicalNot, *x),
        Op::BitwiseInvert { x } => Unary(UnaryOp::BitwiseInvert, *x),
        Op::AsType { x, .. } => Element::Cast(*x),
        Op::Add { a, b } => Binary(BinaryOp::Add, *a, *b),
        Op::Subtract { a, b } => Binary(BinaryOp::Subtract, *a, *b),
        Op::Multiply { a, b } => Binary(BinaryOp::Multiply, *a, *b),
        Op::Divide { a, b } => Binary(BinaryOp::Divide, *a, *b),
        Op::FloorDivide { a, b } => Binary(BinaryOp::FloorDivide, *a, *b),
        Op::Remainder { a, b } => Binary(BinaryOp::Remainder, *a, *b),
        Op::Power { a, b } => Binary(BinaryOp::Power, *a, *b),
        Op::Maximum { a, b } => Binary(BinaryOp::Maximum, *a, *b),
        Op::Minimum { a, b } => Binary(BinaryOp::Minimum, *a, *b),
        Op::Atan2 { a, b } => Binary(BinaryOp::Atan2, *a, *b),
        Op::LogAddExp { a, b } => Binary(BinaryOp::LogAddExp, *a, *b),
        Op::BitwiseAnd { a, b } => Binary(BinaryOp::BitwiseAnd, *a, *b),
        Op::BitwiseOr { a, b } => Binary(BinaryOp::BitwiseOr, *a, *b),
        Op::BitwiseXor { a, b } => Binary(BinaryOp::BitwiseXor, *a, *b),
        Op::Less { a, b } => Compare(BinaryOp::Less, *a, *b),
        Op::LessEqual { a, b } => Compare(BinaryOp::LessEqual, *a, *b),
        Op::Greater { a, b } => Compare(BinaryOp::Greater, *a, *b),
        Op::GreaterEqual { a, b } => Compare(BinaryOp::GreaterEqual, *a, *b),
        Op::Equal { a, b } => Compare(BinaryOp::Equal, *a, *b),
        Op::NotEqual { a, b } => Compare(BinaryOp::NotEqual, *a, *b),
        Op::LogicalAnd { a, b } => Compare(BinaryOp::LogicalAnd, *a, *b),
        Op::LogicalOr { a, b } => Compare(BinaryOp::LogicalOr, *a, *b),
        Op::Where { condition, x, y } => Element::Select(*condition, *x, *y),
        Op::Clip { x, a_min, a_max } => Element::Clip(*x, *a_min, *a_max),
        _ => return None,
    })
}

/// Whether an op is one of these.
pub(super) fn is_elementwise(op: &Op<Ssa>) -> bool {
    element(op).is_some()
}

/// A chain under construction, with the operands that it reads from memory.
struct Building<'p> {
    types: &'p Types,
    /// Nodes whose results are computed inside the chain, by result.
    inner: &'p HashMap<ValueId, &'p Node>,
    builder: ChainBuilder,
    operands: Vec<(ValueId, Value)>,
    made: Vec<(ValueId, Value)>,
}

impl Building<'_> {
    fn dtype(&self, value: ValueId) -> Option<DType> {
        self.types.tensor(value).map(|tensor| tensor.dtype)
    }

    /// A value as the chain sees it, converted to a dtype.
    fn operand(&mut self, value: ValueId, dtype: Option<DType>) -> Option<Value> {
        let known = self.operands.iter().chain(&self.made).find(|(known, _)| *known == value);
        let made = match known {
            Some((_, made)) => *made,
            None => match self.inner.get(&value) {
                // What a product or a convolution gives is in its place.
                Some(node) if is_elementwise(&node.op) => {
                    let made = self.node(node)?;
                    self.made.push((value, made));
                    made
                }
                _ => {
                    if self.operands.len() == MOST_OPERANDS {
                        return None;
                    }
                    let made = self.builder.input(self.dtype(value)?)?;
                    self.operands.push((value, made));
                    made
                }
            },
        };
        match dtype {
            Some(dtype) => self.builder.cast(made, dtype),
            None => Some(made),
        }
    }

    /// The result of a node.
    fn node(&mut self, node: &Node) -> Option<Value> {
        let dtype = self.dtype(*node.results.first()?)?;
        match element(&node.op)? {
            Element::Unary(op @ UnaryOp::LogicalNot, x) => {
                let x = self.operand(x, None)?;
                self.builder.unary(op, x)
            }
            Element::Unary(op, x) => {
                let x = self.operand(x, Some(dtype))?;
                self.builder.unary(op, x)
            }
            // Truth rounded to tens is a number's affair.
            Element::Round(_, ..0) if dtype == DType::Bool => None,
            Element::Round(x, decimals) => {
                let x = self.operand(x, None)?;
                self.builder.round(x, decimals)
            }
            Element::Cast(x) => self.operand(x, Some(dtype)),
            Element::Binary(op, a, b) => {
                let (a, b) = (self.operand(a, Some(dtype))?, self.operand(b, Some(dtype))?);
                self.builder.binary(op, a, b)
            }
            Element::Compare(op, a, b) => {
                let dtype = promote(self.dtype(a)?, self.dtype(b)?);
                let (a, b) = (self.operand(a, Some(dtype))?, self.operand(b, Some(dtype))?);
                self.builder.binary(op, a, b)
            }
            Element::Select(condition, x, y) => {
                let condition = self.operand(condition, Some(DType::Bool))?;
                let (x, y) = (self.operand(x, Some(dtype))?, self.operand(y, Some(dtype))?);
                self.builder.select(condition, x, y)
            }
            Element::Clip(x, low, high) => {
                let x = self.operand(x, Some(dtype))?;
                let low = low.map(|low| self.operand(low, Some(dtype)).ok_or(())).transpose().ok()?;
                let high = high.map(|high| self.operand(high, Some(dtype)).ok_or(())).transpose().ok()?;
                self.builder.clip(x, low, high)
            }
        }
    }
}

/// A chain with the values that it reads from memory.
pub(super) struct Fused {
    pub(super) chain: Chain,
    pub(super) operands: Vec<ValueId>,
}

/// The chain that computes a node, with those before it whose results nobody else needs; `None` where a part of it is
/// nothing that chains can do.
pub(super) fn fuse(node: &Node, inner: &HashMap<ValueId, &Node>, types: &Types, path: Path) -> Option<Fused> {
    let &result = node.results.first()?;
    let builder = ChainBuilder::new(path);
    let mut building = Building { types, inner, builder, operands: Vec::new(), made: Vec::new() };
    let made = building.node(node)?;
    let operands = building.operands.iter().map(|(value, _)| *value).collect();
    let chain = building.builder.finish(made)?;
    (chain.output() == types.tensor(result)?.dtype).then_some(Fused { chain, operands })
}

pub(super) fn compile(planner: &Planner<'_>, node: &Numbered) -> Option<Compiled> {
    let &result = node.node.results.first()?;
    let alone = HashMap::new();
    let inner = planner.groups.inner(node.number).unwrap_or(&alone);
    let Fused { chain, operands } = fuse(&node.node, inner, planner.types, planner.lower.path)?;
    Some(Compiled::Compute(Box::new(move |run| apply(run, &chain, &operands, result))))
}

/// Runs a chain over operands that broadcast to the result.
fn apply(run: &Run<'_>, chain: &Chain, operands: &[ValueId], result: ValueId) -> Result<(), NodeError> {
    apply_to(run, chain, operands, &mut run.target(result)?, None)
}

/// The same into a target, which may be the operand of that number itself.
pub(super) fn apply_to(
    run: &Run<'_>,
    chain: &Chain,
    operands: &[ValueId],
    target: &mut ViewMut<'_>,
    own: Option<usize>,
) -> Result<(), NodeError> {
    let (data, dtype) = (target.data(), target.dtype());
    let itself = Layout::from_parts(target.sizes(), target.strides());
    let mut layouts = [Layout::SCALAR; MOST_OPERANDS];
    for (number, (&operand, layout)) in operands.iter().zip(&mut layouts).enumerate() {
        let spread = match own == Some(number) {
            true => itself,
            false => run.slot(operand).layout.broadcast_to(target.sizes()),
        };
        *layout = spread.ok_or_else(|| invalid("shapes do not broadcast"))?;
    }
    let empty = View::new(&[], DType::U8, 0, &[0], &[1]).ok_or_else(|| invalid("an empty view"))?;
    let mut views = [empty; MOST_OPERANDS];
    for (number, ((&operand, layout), view)) in operands.iter().zip(&layouts).zip(&mut views).enumerate() {
        let (data, dtype) = match own == Some(number) {
            true => (data.cast_const(), dtype),
            false => run.view(operand).map(|source| (source.data(), source.dtype()))?,
        };
        // SAFETY: the operand's own elements, some of them more than once, or the very elements of the target.
        *view = unsafe { View::from_raw(data, dtype, layout.sizes(), layout.strides()) };
    }
    chain.run(run.pool, target, &views[..operands.len()]);
    Ok(())
}
