//! Which operators write to an argument, and what computes the same without writing.

use crate::pt2::argument::Argument;
use crate::pt2::schema::{NamedArgument, Node};

/// An operator that writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct InPlace {
    /// The operator that gives what would have been written.
    pub(super) functional: String,
    /// The argument that is written, by name.
    pub(super) argument: &'static str,
    /// Whether it also returns something of its own; then the written value comes after that.
    pub(super) returns_more: bool,
}

/// Custom operators that write: name, argument, whether the result is one of its own.
const CUSTOM: [(&str, &str, bool); 2] =
    [("mlx.kv_cache_update.default", "cache", false), ("mlx.gated_delta_rule.default", "state", true)];

/// What a node writes, if it does.
pub(super) fn of(node: &Node) -> Option<InPlace> {
    let target = node.target.strip_prefix("torch.ops.")?;
    if let Some((name, argument, returns_more)) = CUSTOM.iter().find(|row| row.0 == target) {
        let functional = format!("torch.ops.{}", name.replace(".default", ".functional"));
        return Some(InPlace { functional, argument, returns_more: *returns_more });
    }
    let (name, overload) = target.strip_prefix("aten.")?.split_once('.')?;
    let functional = match name {
        // Python's `&=` and its kin.
        "__iand__" | "__ior__" | "__ixor__" | "__ilshift__" | "__irshift__" => name.replacen("__i", "__", 1),
        "detach_" => return None,
        _ if name.ends_with('_') && !name.ends_with("__") => name.trim_end_matches('_').to_owned(),
        _ => return None,
    };
    let functional = format!("torch.ops.aten.{functional}.{overload}");
    Some(InPlace { functional, argument: "self", returns_more: false })
}

/// The functional node that stands behind torch's wrapper of a custom operator that writes: after decomposition,
/// `auto_functionalized_v2` takes the operator, its arguments and the tensors that it writes to, and gives what the
/// operator returns, then the new tensors.
pub(super) fn unwrapped(node: &Node) -> Option<Node> {
    let wrapper = node.target.strip_prefix("torch.ops.higher_order.")?;
    if !wrapper.starts_with("auto_functionalized") {
        return None;
    }
    let given = |name: &str| node.inputs.iter().find(|input| input.name == name).map(|input| &input.arg);
    let operator = node.inputs.iter().find_map(|input| match &input.arg {
        Argument::Operator(operator) => operator.strip_prefix("torch.ops."),
        _ => None,
    })?;
    let (name, argument, returns_more) = CUSTOM.iter().find(|row| row.0 == operator)?;
    let base = match (given(argument), given("_all_bases"), given(&format!("_{argument}_base_index"))) {
        (Some(base), ..) => base.clone(),
        (None, Some(Argument::Tensors(bases)), Some(Argument::Int(index))) => {
            Argument::Tensor(bases.get(usize::try_from(*index).ok()?)?.clone())
        }
        _ => return None,
    };
    let plain = |input: &&NamedArgument| !input.name.is_empty() && !input.name.starts_with('_');
    let mut inputs: Vec<NamedArgument> =
        node.inputs.iter().filter(plain).filter(|input| input.name != *argument).cloned().collect();
    inputs.push(NamedArgument { name: (*argument).to_owned(), arg: base, kind: None });
    // What an operator without a result of its own returns says nothing.
    let outputs = node.outputs.iter().skip(usize::from(!returns_more)).cloned().collect();
    let target = format!("torch.ops.{}", name.replace(".default", ".functional"));
    Some(Node { target, inputs, outputs, ..node.clone() })
}

/// The value that a node writes to.
pub(super) fn written<'a>(node: &'a Node, place: &InPlace) -> Option<&'a str> {
    let input = node.inputs.iter().find(|input| input.name == place.argument)?;
    match &input.arg {
        Argument::Tensor(tensor) => Some(&tensor.name),
        _ => None,
    }
}
