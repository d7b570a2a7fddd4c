//! Which operators give a window on their first argument, and what writes through such a window.

use crate::pt2::argument::{Argument, Name, OrName, SymInt, TensorMeta};
use crate::pt2::schema::{Graph, NamedArgument, Node};
use indexmap::IndexMap;

/// Operators whose result always is a view.
const VIEWS: [&str; 29] = [
    "alias",
    "detach",
    "detach_",
    "view",
    "slice",
    "select",
    "narrow",
    "transpose",
    "permute",
    "t",
    "unsqueeze",
    "squeeze",
    "expand",
    "expand_as",
    "unflatten",
    "chunk",
    "split",
    "split_with_sizes",
    "unbind",
    "movedim",
    "swapaxes",
    "swapdims",
    "view_as",
    "lift_fresh",
    "tensor_split",
    "numpy_T",
    "mT",
    "adjoint",
    "unsafe_chunk",
];

/// Operators that give their argument itself where there is nothing to do.
const MAYBE_SELF: [&str; 7] =
    ["to", "type_as", "contiguous", "dropout", "feature_dropout", "reshape", "flatten"];

fn operator(target: &str) -> Option<&str> {
    target.strip_prefix("torch.ops.aten.")?.split('.').next()
}

/// The value that a node's result is a view of.
pub(super) fn parent(node: &Node, graph: &Graph) -> Option<String> {
    let name = operator(&node.target)?;
    let Argument::Tensor(from) = &node.inputs.first()?.arg else { return None };
    let overload = node.target.rsplit('.').next()?;
    let is_view = match name {
        "view" if overload == "dtype" => false,
        _ if VIEWS.contains(&name) => true,
        _ if MAYBE_SELF.contains(&name) => gives_itself(name, node, graph, &from.name),
        _ => false,
    };
    is_view.then(|| from.name.clone())
}

fn gives_itself(name: &str, node: &Node, graph: &Graph, from: &str) -> bool {
    let Some(before) = graph.tensor_values.get(from) else { return false };
    let Some(Argument::Tensor(to)) = node.outputs.first() else { return false };
    let Some(after) = graph.tensor_values.get(&to.name) else { return false };
    let flag = |name: &str| {
        let found = node.inputs.iter().find(|input| input.name == name);
        matches!(found.map(|input| &input.arg), Some(Argument::Bool(true)))
    };
    match name {
        "to" | "type_as" => before.dtype == after.dtype && !flag("copy"),
        "dropout" | "feature_dropout" => !flag("train"),
        _ => is_contiguous(before),
    }
}

/// Whether elements lie in row-major order, as far as symbolic strides tell.
fn is_contiguous(meta: &TensorMeta) -> bool {
    let mut expected = Some(1i64);
    meta.sizes.iter().zip(&meta.strides).rev().all(|(size, stride)| {
        let fits = match (size, stride, expected) {
            (SymInt::Int(1), _, _) => true,
            (_, SymInt::Int(stride), Some(expected)) => *stride == expected,
            (_, SymInt::Expr(_), Some(_)) => false,
            _ => true,
        };
        expected = match size {
            SymInt::Int(size) => expected.and_then(|expected| expected.checked_mul(*size)),
            SymInt::Expr(_) => None,
        };
        fits
    })
}

/// A view that changes nothing.
pub(super) fn identity() -> Node {
    Node { target: "torch.ops.aten.alias.default".into(), ..Node::default() }
}

/// Whether a view changes nothing but the name.
pub(super) fn is_identity(node: &Node) -> bool {
    matches!(
        operator(&node.target),
        Some(
            "alias"
                | "detach"
                | "detach_"
                | "lift_fresh"
                | "to"
                | "type_as"
                | "contiguous"
                | "dropout"
                | "feature_dropout"
        )
    )
}

/// Makes a node a view of another value.
pub(super) fn set_parent(node: &mut Node, from: &str) {
    if let Some(first) = node.inputs.first_mut() {
        first.arg = Argument::Tensor(Name { name: from.to_owned() });
    }
}

/// A node that is still to be named.
pub(super) struct Inverse {
    target: &'static str,
    inputs: Vec<NamedArgument>,
}

impl Inverse {
    /// The node, giving `output`, with the place of the node that wrote.
    pub(super) fn named(self, output: &str, writer: &Node) -> Node {
        Node {
            target: format!("torch.ops.aten.{}", self.target),
            inputs: self.inputs,
            outputs: vec![Argument::Tensor(Name { name: output.to_owned() })],
            metadata: writer.metadata.clone(),
            is_hop_single_tensor_return: None,
            name: Some(output.to_owned()),
        }
    }
}

/// What gives the parent with `new` in the place that `view` showed. `old` is what the parent held, of type `meta`.
pub(super) fn inverse(
    view: &Node,
    viewed: &str,
    old: &str,
    new: &str,
    meta: &TensorMeta,
    tensors: &IndexMap<String, TensorMeta>,
) -> Option<Inverse> {
    let tensor = |name: &str, value: &str| NamedArgument {
        name: name.to_owned(),
        arg: Argument::Tensor(Name { name: value.to_owned() }),
        kind: None,
    };
    let int = |name: &str, value: i64| NamedArgument {
        name: name.to_owned(),
        arg: Argument::Int(value),
        kind: None,
    };
    let given = |name: &str| view.inputs.iter().find(|input| input.name == name).cloned();
    let rank = meta.sizes.len() as i64;
    let wrap = |dim: i64, rank: i64| if dim < 0 { dim + rank } else { dim };
    let number = |name: &str, default: i64| match given(name).map(|input| input.arg) {
        None => Some(default),
        Some(Argument::Int(value) | Argument::SymInt(OrName::Plain(value))) => Some(value),
        Some(_) => None,
    };
    let scatter = |target: &'static str, extra: &[&str]| {
        let mut inputs = vec![tensor("self", old), tensor("src", new)];
        inputs.extend(extra.iter().filter_map(|name| given(name)));
        Some(Inverse { target, inputs })
    };
    let permuted = |dims: Vec<i64>| {
        let inputs = vec![
            tensor("self", new),
            NamedArgument { name: "dims".into(), arg: Argument::Ints(dims), kind: None },
        ];
        Some(Inverse { target: "permute.default", inputs })
    };
    match operator(&view.target)? {
        "slice" => scatter("slice_scatter.default", &["dim", "start", "end", "step"]),
        "select" => scatter("select_scatter.default", &["dim", "index"]),
        "narrow" => {
            let mut inverse = scatter("slice_scatter.default", &["dim", "start"])?;
            let (start, length) = (number("start", 0)?, number("length", 0)?);
            inverse.inputs.push(int("end", start.checked_add(length)?));
            Some(inverse)
        }
        "unsqueeze" => {
            let dim = wrap(number("dim", 0)?, rank + 1);
            Some(Inverse { target: "squeeze.dim", inputs: vec![tensor("self", new), int("dim", dim)] })
        }
        "transpose" | "swapaxes" | "swapdims" => {
            let names = if given("dim0").is_some() { ("dim0", "dim1") } else { ("axis0", "axis1") };
            let (a, b) = (number(names.0, 0)?, number(names.1, 0)?);
            Some(Inverse {
                target: "transpose.int",
                inputs: vec![tensor("self", new), int("dim0", a), int("dim1", b)],
            })
        }
        "t" | "numpy_T" if rank <= 2 => permuted((0..rank).rev().collect()),
        "permute" => {
            let Argument::Ints(dims) = given("dims")?.arg else { return None };
            let mut back = vec![0; dims.len()];
            for (at, dim) in dims.iter().enumerate() {
                *back.get_mut(usize::try_from(wrap(*dim, rank)).ok()?)? = at as i64;
            }
            permuted(back)
        }
        "view" | "reshape" | "flatten" | "unflatten" | "squeeze" | "view_as" => {
            let sizes = meta.sizes.iter().map(|size| match size {
                SymInt::Int(size) => Some(*size),
                SymInt::Expr(_) => None,
            });
            // One symbolic size can be found from the others.
            let mut sizes: Vec<Option<i64>> = sizes.collect();
            if sizes.iter().filter(|size| size.is_none()).count() == 1 {
                sizes.iter_mut().for_each(|size| *size = size.or(Some(-1)));
            }
            let sizes = sizes.into_iter().collect::<Option<Vec<i64>>>()?;
            let size = NamedArgument { name: "size".into(), arg: Argument::Ints(sizes), kind: None };
            Some(Inverse { target: "view.default", inputs: vec![tensor("self", new), size] })
        }
        "chunk" | "split" | "split_with_sizes" | "unsafe_chunk" => {
            let dim = wrap(number("dim", 0)?, rank);
            let (start, end) = piece(view, viewed, tensors, dim)?;
            let inputs = vec![
                tensor("self", old),
                tensor("src", new),
                int("dim", dim),
                int("start", start),
                int("end", end),
            ];
            Some(Inverse { target: "slice_scatter.default", inputs })
        }
        "unbind" => {
            let dim = wrap(number("dim", 0)?, rank);
            let index = position(view, viewed)?;
            let inputs = vec![tensor("self", old), tensor("src", new), int("dim", dim), int("index", index)];
            Some(Inverse { target: "select_scatter.default", inputs })
        }
        _ => None,
    }
}

/// Which of a node's results a value is.
fn position(view: &Node, viewed: &str) -> Option<i64> {
    view.gives().iter().position(|name| *name == viewed).map(|at| at as i64)
}

/// Where a piece of a split begins and ends, by the sizes of the pieces before it.
fn piece(view: &Node, viewed: &str, tensors: &IndexMap<String, TensorMeta>, dim: i64) -> Option<(i64, i64)> {
    let axis = usize::try_from(dim).ok()?;
    let mut start = 0i64;
    for name in view.gives() {
        let SymInt::Int(length) = tensors.get(name)?.sizes.get(axis)? else { return None };
        let end = start.checked_add(*length)?;
        if name == viewed {
            return Some((start, end));
        }
        start = end;
    }
    None
}
