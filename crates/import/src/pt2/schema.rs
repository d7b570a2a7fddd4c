//! The exported program as torch's schema 8.20 lays it out: graph, nodes, signature, ranges.
//!
//! JSON flows in through serde, typed tables flow out, in the words of the schema where those are good ones.
//! Fields that no reader needs (`from_node`, tree specs of submodules) are skipped; whether the tables fit
//! together is the business of `verify`.

use super::argument::{Argument, ArgumentKind, CustomObject, Name, SymBool, SymFloat, SymInt, TensorMeta};
use super::error::{Pt2Error, Result, clip};
use super::json::{self, Float, Named, list, within};
use pteron_format::Limits;
use serde::de::{Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;

/// The one major version that is known.
const MAJOR: i64 = 8;
/// The minor version of torch 2.13, 2.14 and 2.15.
const MINOR: i64 = 20;

/// The version of the schema that a program was written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct SchemaVersion {
    /// Raised when old readers fail.
    pub major: i64,
    /// Raised when they do not.
    pub minor: i64,
}

/// Everything that `models/<name>.json` says.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Program {
    /// Graph and signature.
    pub graph_module: GraphModule,
    /// Operator namespace to version.
    pub opset_version: Named<i64>,
    /// Symbol to bounds; one that is not listed has none.
    pub range_constraints: Named<RangeConstraint>,
    /// The schema's version.
    pub schema_version: SchemaVersion,
    /// The dialects that the graph was checked against: `TRAINING` (in-place and composite operators) or
    /// `ATEN`.
    #[serde(default)]
    pub verifiers: Vec<String>,
    /// The torch that wrote it.
    #[serde(default)]
    pub torch_version: String,
    /// Conditions on the inputs, as Python text; never evaluated.
    #[serde(default)]
    pub guards_code: Vec<String>,
}

impl Program {
    /// Parses a program's member, its version first: another schema has another shape.
    pub fn parse(member: &str, text: &[u8], limits: &Limits) -> Result<Program> {
        #[derive(Deserialize)]
        struct Head {
            schema_version: SchemaVersion,
        }
        let SchemaVersion { major, minor } = json::parse::<Head>(member, text, limits)?.schema_version;
        if (major, minor) != (MAJOR, MINOR) {
            return Err(Pt2Error::Schema { member: clip(member), major, minor, known: "8.20" });
        }
        json::parse(member, text, limits)
    }
}

/// Bounds of a symbol; absent where there is none. A minimum of 2 may only mean that 0 and 1 were special.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct RangeConstraint {
    /// The least value.
    pub min_val: Option<i64>,
    /// The largest value.
    pub max_val: Option<i64>,
}

/// The graph with what it takes and gives.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct GraphModule {
    /// The graph.
    pub graph: Graph,
    /// What its inputs and outputs are to the model.
    pub signature: Signature,
    /// How modules called each other; the first entry is the whole program.
    #[serde(deserialize_with = "list")]
    pub module_call_graph: Vec<ModuleCall>,
}

/// One module's call.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct ModuleCall {
    /// Path of the module; empty for the whole program.
    pub fqn: String,
    /// Absent where the exporter did not keep it.
    #[serde(default)]
    pub signature: Option<CallSignature>,
}

/// How Python calls a module.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct CallSignature {
    /// The tree of (args, kwargs), as JSON in text.
    pub in_spec: String,
    /// The tree of results, as JSON in text.
    pub out_spec: String,
    /// The parameters' names.
    #[serde(default)]
    pub forward_arg_names: Option<Vec<String>>,
}

/// Nodes in order, and what is known of every value.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Graph {
    /// What flows in: values, or constants that were fixed at export.
    #[serde(deserialize_with = "list")]
    pub inputs: Vec<Argument>,
    /// What flows out.
    #[serde(deserialize_with = "list")]
    pub outputs: Vec<Argument>,
    /// Each uses only what stands before it.
    #[serde(deserialize_with = "list")]
    pub nodes: Vec<Node>,
    /// Tensors by name.
    pub tensor_values: Named<TensorMeta>,
    /// Symbolic integers by name.
    pub sym_int_values: Named<SymInt>,
    /// Symbolic truth values by name.
    pub sym_bool_values: Named<SymBool>,
    /// Symbolic floats by name.
    #[serde(default)]
    pub sym_float_values: Named<SymFloat>,
    /// Objects by name.
    #[serde(default)]
    pub custom_obj_values: Named<CustomObject>,
    /// A graph of a higher-order operator that gives one tensor, not a list of one.
    #[serde(default)]
    pub is_single_tensor_return: bool,
}

/// An argument with the name that the operator's schema gives it; empty for higher-order operators.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct NamedArgument {
    /// The parameter.
    pub name: String,
    /// What it is given.
    pub arg: Argument,
    /// By position or by keyword.
    #[serde(default)]
    pub kind: Option<ArgumentKind>,
}

/// One operator's call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// `torch.ops.<namespace>.<operator>.<overload>`, or a Python function for arithmetic on symbols.
    pub target: String,
    /// Arguments that were given; defaults at the end are left out.
    pub inputs: Vec<NamedArgument>,
    /// What it gives; empty for checks.
    pub outputs: Vec<Argument>,
    /// Where it comes from, as the exporter recorded it.
    pub metadata: Named<String>,
    /// Set for higher-order operators only.
    pub is_hop_single_tensor_return: Option<bool>,
    /// The exporter's name of the node; absent in old files.
    pub name: Option<String>,
}

/// The module of the source model that a node comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModulePlace<'a> {
    /// Its path, such as `layers.0.mlp`; empty for the model itself.
    pub path: &'a str,
    /// Its class, fully qualified.
    pub class: &'a str,
}

impl Node {
    /// The innermost module that the node was traced in.
    pub fn module(&self) -> Option<ModulePlace<'_>> {
        let frame = self.metadata.get("nn_module_stack")?.rsplit(';').next()?;
        let mut parts = frame.splitn(3, ',');
        let (_, path, class) = (parts.next()?, parts.next()?, parts.next()?);
        Some(ModulePlace { path, class })
    }

    /// The Python lines that it was traced from. They hold paths of the exporting machine: not for what we
    /// write.
    pub fn stack_trace(&self) -> Option<&str> {
        self.metadata.get("stack_trace").map(String::as_str)
    }

    /// Names of the values that it reads, in order.
    pub fn reads(&self) -> Vec<&str> {
        let mut names = Vec::new();
        self.inputs.iter().for_each(|input| input.arg.names(&mut |_, name| names.push(name)));
        names
    }

    /// Names of the values that it gives, in order.
    pub fn gives(&self) -> Vec<&str> {
        let mut names = Vec::new();
        self.outputs.iter().for_each(|output| output.names(&mut |_, name| names.push(name)));
        names
    }

    /// The node in words, for errors: its name, its operator and its module.
    pub fn place(&self) -> String {
        let name = self.name.as_deref().unwrap_or("without a name");
        let mut place = format!("node `{}` ({})", clip(name), clip(&self.target));
        if let Some(module) = self.module() {
            let path = if module.path.is_empty() { "the model" } else { module.path };
            let class = module.class.rsplit('.').next().unwrap_or_default();
            place += &format!(" in {} ({})", clip(path), clip(class));
        }
        place
    }
}

/// By hand, so that an unknown kind of argument is reported with the node that has it.
impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Node, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Node;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a node")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
                let mut node = Node::default();
                let mut seen = [false; 3];
                while let Some(key) = map.next_key::<String>()? {
                    read_field(&mut node, &mut seen, &key, &mut map).map_err(|error| {
                        within(format_args!("`{}`, {}", clip(&node.target), clip(&key)), error)
                    })?;
                }
                match seen {
                    [true, true, true] => Ok(node),
                    _ => Err(A::Error::custom("a node needs `target`, `inputs` and `outputs`")),
                }
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

fn read_field<'de, A: MapAccess<'de>>(
    node: &mut Node,
    seen: &mut [bool; 3],
    key: &str,
    map: &mut A,
) -> Result<(), A::Error> {
    struct List<T>(Vec<T>);
    impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<List<T>, D::Error> {
            list(deserializer).map(List)
        }
    }
    let mut once = |index: usize| match std::mem::replace(&mut seen[index], true) {
        true => Err(A::Error::custom("is there twice")),
        false => Ok(()),
    };
    match key {
        "target" => {
            once(0)?;
            node.target = map.next_value()?;
        }
        "inputs" => {
            once(1)?;
            node.inputs = map.next_value::<List<NamedArgument>>()?.0;
        }
        "outputs" => {
            once(2)?;
            node.outputs = map.next_value::<List<Argument>>()?.0;
        }
        "metadata" => node.metadata = map.next_value()?,
        "is_hop_single_tensor_return" => node.is_hop_single_tensor_return = map.next_value()?,
        "name" => node.name = map.next_value()?,
        _ => {
            map.next_value::<IgnoredAny>()?;
        }
    }
    Ok(())
}

/// What the graph's inputs and outputs are to the model, one spec each and in the same order.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Signature {
    /// Parameters, buffers, constants, then what the user gives.
    #[serde(deserialize_with = "list")]
    pub input_specs: Vec<InputSpec>,
    /// Mutations, then what the user gets.
    #[serde(deserialize_with = "list")]
    pub output_specs: Vec<OutputSpec>,
}

/// A Python value that was fixed at export.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[allow(missing_docs)] // the types say it
pub enum ConstantValue {
    #[serde(rename = "as_none")]
    None(bool),
    #[serde(rename = "as_int")]
    Int(i64),
    #[serde(rename = "as_float")]
    Float(Float),
    #[serde(rename = "as_string")]
    Text(String),
    #[serde(rename = "as_bool")]
    Bool(bool),
}

/// What an input is.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)] // fields in the schema's words
pub enum InputSpec {
    /// The user gives it.
    UserInput { arg: Argument },
    /// A weight.
    Parameter { arg: Name, parameter_name: String },
    /// A buffer; only persistent ones are among the weights, the others among the constants.
    Buffer { arg: Name, buffer_name: String, persistent: bool },
    /// A tensor that the model's code holds.
    TensorConstant { arg: Name, tensor_constant_name: String },
    /// An object that only its operators understand.
    CustomObj { arg: CustomObject, custom_obj_name: String },
    /// Orders effects.
    Token { arg: Name },
    /// The user gives it, but no other value than this was exported.
    ConstantInput { name: String, value: ConstantValue },
}

/// What an output is.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)] // fields in the schema's words
pub enum OutputSpec {
    /// The user gets it.
    UserOutput { arg: Argument },
    /// What training would minimise.
    LossOutput { arg: Name },
    /// A buffer's new value.
    BufferMutation { arg: Name, buffer_name: String },
    /// A parameter's new value.
    ParameterMutation { arg: Name, parameter_name: String },
    /// A parameter's gradient.
    GradientToParameter { arg: Name, parameter_name: String },
    /// An input's gradient.
    GradientToUserInput { arg: Name, user_input_name: String },
    /// The new value of a tensor that the user gave.
    UserInputMutation { arg: Name, user_input_name: String },
    /// Orders effects.
    Token { arg: Name },
}

impl InputSpec {
    /// The weight, buffer or constant that it is bound to.
    pub fn target(&self) -> Option<&str> {
        match self {
            InputSpec::Parameter { parameter_name: name, .. }
            | InputSpec::Buffer { buffer_name: name, .. }
            | InputSpec::TensorConstant { tensor_constant_name: name, .. }
            | InputSpec::CustomObj { custom_obj_name: name, .. } => Some(name),
            InputSpec::UserInput { .. } | InputSpec::Token { .. } | InputSpec::ConstantInput { .. } => None,
        }
    }
}
