//! What nodes take and give: torch's one-of objects and numbered enumerations as Rust types, and what is
//! recorded of a tensor.
//!
//! JSON flows in through serde; a member or number that is not listed here is an error, never a guess.

use super::expr::Expr;
use super::json::{Float, Named, list};
use super::schema::Graph;
use pteron_tensor::DType;
use serde::{Deserialize, Deserializer};

macro_rules! numbered {
    ($(#[$about:meta])* $name:ident, $what:literal { $($(#[$doc:meta])* $variant:ident = $number:literal),* $(,)? }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
        #[serde(try_from = "i64")]
        #[allow(missing_docs)] // the names are torch's own
        pub enum $name { $($(#[$doc])* $variant = $number),* }

        impl TryFrom<i64> for $name {
            type Error = String;
            fn try_from(number: i64) -> Result<$name, String> {
                match number {
                    $($number => Ok($name::$variant),)*
                    _ => Err(format!(concat!("unknown ", $what, " {}"), number)),
                }
            }
        }
    };
}

numbered! {
    /// The type of one element, by the numbers of the export schema (c10 has others).
    ScalarType, "scalar type" {
        U8 = 1, I8 = 2, I16 = 3, I32 = 4, I64 = 5, F16 = 6, F32 = 7, F64 = 8, Complex32 = 9, Complex64 = 10,
        Complex128 = 11, Bool = 12, BF16 = 13, U16 = 28, F8E4M3Fn = 29, F8E5M2 = 30, F8E4M3FnUz = 31, F8E5M2FnUz = 32,
        F8E8M0FnU = 33, U32 = 34, U64 = 35,
    }
}

numbered! {
    /// How a tensor lies in memory.
    Layout, "layout" {
        SparseCoo = 1, SparseCsr = 2, SparseCsc = 3, SparseBsr = 4, SparseBsc = 5, Mkldnn = 6, Strided = 7,
    }
}

numbered! {
    /// The order of dims in memory.
    MemoryFormat, "memory format" { Contiguous = 1, ChannelsLast = 2, ChannelsLast3d = 3, Preserve = 4 }
}

numbered! {
    /// How an argument was given.
    ArgumentKind, "kind of argument" { Unknown = 0, Positional = 1, Keyword = 2 }
}

impl ScalarType {
    /// Name, bytes of an element, and our dtype where we have one.
    fn row(self) -> (&'static str, usize, Option<DType>) {
        let ours = |dtype: DType| (dtype.name(), dtype.size(), Some(dtype));
        match self {
            ScalarType::U8 => ours(DType::U8),
            ScalarType::I8 => ours(DType::I8),
            ScalarType::I16 => ours(DType::I16),
            ScalarType::I32 => ours(DType::I32),
            ScalarType::I64 => ours(DType::I64),
            ScalarType::F16 => ours(DType::F16),
            ScalarType::F32 => ours(DType::F32),
            ScalarType::F64 => ours(DType::F64),
            ScalarType::Bool => ours(DType::Bool),
            ScalarType::BF16 => ours(DType::BF16),
            ScalarType::U16 => ours(DType::U16),
            ScalarType::U32 => ours(DType::U32),
            ScalarType::U64 => ours(DType::U64),
            ScalarType::Complex32 => ("complex32", 4, None),
            ScalarType::Complex64 => ("complex64", 8, None),
            ScalarType::Complex128 => ("complex128", 16, None),
            ScalarType::F8E4M3Fn => ("f8e4m3fn", 1, None),
            ScalarType::F8E5M2 => ("f8e5m2", 1, None),
            ScalarType::F8E4M3FnUz => ("f8e4m3fnuz", 1, None),
            ScalarType::F8E5M2FnUz => ("f8e5m2fnuz", 1, None),
            ScalarType::F8E8M0FnU => ("f8e8m0fnu", 1, None),
        }
    }

    /// Short name: `f32`, `bf16`, `f8e4m3fn`.
    pub fn name(self) -> &'static str {
        self.row().0
    }

    /// Bytes of one element.
    pub fn size(self) -> usize {
        self.row().1
    }

    /// The dtype that the rest of the workspace knows it by, if it does.
    pub fn dtype(self) -> Option<DType> {
        self.row().2
    }
}

/// Where a tensor lay when the program was exported.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Device {
    /// `cpu`, `cuda`, ...
    #[serde(rename = "type")]
    pub kind: String,
    /// Which of several.
    #[serde(default)]
    pub index: Option<i64>,
}

/// The value that an expression had when the program was exported.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[allow(missing_docs)] // the types say it
pub enum Hint {
    #[serde(rename = "as_int")]
    Int(i64),
    #[serde(rename = "as_bool")]
    Bool(bool),
    #[serde(rename = "as_float")]
    Float(Float),
}

/// A number or truth value that depends on symbols.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct SymExpr {
    /// The expression.
    #[serde(rename = "expr_str", deserialize_with = "expression")]
    pub expr: Expr,
    /// Absent where the value is known only when the program runs.
    #[serde(default)]
    pub hint: Option<Hint>,
}

fn expression<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Expr, D::Error> {
    let text = String::deserialize(deserializer)?;
    Expr::parse(&text).map_err(serde::de::Error::custom)
}

/// A size, stride or offset.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub enum SymInt {
    /// A plain number.
    #[serde(rename = "as_int")]
    Int(i64),
    /// An expression over symbols.
    #[serde(rename = "as_expr")]
    Expr(SymExpr),
}

/// A float of the graph.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub enum SymFloat {
    /// A plain number.
    #[serde(rename = "as_float")]
    Float(Float),
    /// An expression over symbols.
    #[serde(rename = "as_expr")]
    Expr(SymExpr),
}

/// A truth value of the graph.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub enum SymBool {
    /// A plain one.
    #[serde(rename = "as_bool")]
    Bool(bool),
    /// An expression over symbols.
    #[serde(rename = "as_expr")]
    Expr(SymExpr),
}

/// What is recorded of a tensor.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct TensorMeta {
    /// Type of one element.
    pub dtype: ScalarType,
    /// Dims, outermost first.
    #[serde(deserialize_with = "list")]
    pub sizes: Vec<SymInt>,
    /// Whether training would change it.
    pub requires_grad: bool,
    /// Where it lay.
    pub device: Device,
    /// Elements between neighbours of each dim.
    #[serde(deserialize_with = "list")]
    pub strides: Vec<SymInt>,
    /// Element of the storage that it begins at.
    pub storage_offset: SymInt,
    /// How it lies in memory.
    pub layout: Layout,
}

/// A value by its name.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Name {
    /// The name, unique in its graph.
    pub name: String,
}

/// A value by its name, or a number in its place.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub enum OrName<T> {
    /// A value of the graph.
    #[serde(rename = "as_name")]
    Name(String),
    /// A plain one.
    #[serde(rename = "as_int", alias = "as_float", alias = "as_bool")]
    Plain(T),
}

/// A tensor that may be left out.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub enum OptionalTensor {
    /// There is one.
    #[serde(rename = "as_tensor")]
    Tensor(Name),
    /// There is none; the value is always true.
    #[serde(rename = "as_none")]
    None(bool),
}

/// A graph that a higher-order operator runs. It sees nothing from outside: all that it uses is passed to it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Subgraph {
    /// What the exporter called it.
    pub name: String,
    /// The graph.
    pub graph: Box<Graph>,
}

/// An object that only its operators understand.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct CustomObject {
    /// Name of the value.
    pub name: String,
    /// Its class.
    pub class_fqn: String,
}

/// A complex number.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub struct Complex {
    /// Real part.
    pub real: Float,
    /// Imaginary part.
    pub imag: Float,
}

macro_rules! argument {
    ($($key:literal $variant:ident($type:ty)),* $(,)?) => {
        /// What a node takes or gives. An int given for a scalar stays an int: promotion depends on it.
        #[derive(Clone, Debug, PartialEq, Deserialize)]
        #[allow(missing_docs)] // the types say it
        pub enum Argument { $(#[serde(rename = $key)] $variant($type)),* }
    };
}

argument! {
    "as_none" None(bool), "as_tensor" Tensor(Name), "as_tensors" Tensors(Vec<Name>), "as_int" Int(i64),
    "as_ints" Ints(Vec<i64>), "as_float" Float(Float), "as_floats" Floats(Vec<Float>), "as_string" Text(String),
    "as_strings" Texts(Vec<String>), "as_sym_int" SymInt(OrName<i64>), "as_sym_ints" SymInts(Vec<OrName<i64>>),
    "as_scalar_type" ScalarType(ScalarType), "as_memory_format" MemoryFormat(MemoryFormat),
    "as_layout" Layout(Layout), "as_device" Device(Device), "as_bool" Bool(bool), "as_bools" Bools(Vec<bool>),
    "as_sym_bool" SymBool(OrName<bool>), "as_sym_bools" SymBools(Vec<OrName<bool>>), "as_graph" Graph(Subgraph),
    "as_optional_tensors" OptionalTensors(Vec<OptionalTensor>), "as_custom_obj" Object(CustomObject),
    "as_operator" Operator(String), "as_sym_float" SymFloat(OrName<Float>),
    "as_sym_floats" SymFloats(Vec<OrName<Float>>), "as_optional_tensor" OptionalTensor(OptionalTensor),
    "as_complex" Complex(Complex), "as_nested_tensors" NestedTensors(Vec<Vec<Name>>),
    "as_int_lists" IntLists(Vec<Vec<i64>>), "as_string_to_argument" Dictionary(Named<Argument>),
    "as_float_lists" FloatLists(Vec<Vec<Float>>),
}

/// What kind of value a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the names say it
pub enum ValueKind {
    Tensor,
    SymInt,
    SymFloat,
    SymBool,
    Object,
}

impl Argument {
    /// Calls `visit` with every value that the argument names; graphs inside it have names of their own.
    pub fn names<'a>(&'a self, visit: &mut impl FnMut(ValueKind, &'a str)) {
        fn named<T>(argument: &OrName<T>) -> Option<&str> {
            match argument {
                OrName::Name(name) => Some(name),
                OrName::Plain(_) => None,
            }
        }
        match self {
            Argument::Tensor(tensor) | Argument::OptionalTensor(OptionalTensor::Tensor(tensor)) => {
                visit(ValueKind::Tensor, &tensor.name);
            }
            Argument::Tensors(tensors) => {
                tensors.iter().for_each(|tensor| visit(ValueKind::Tensor, &tensor.name))
            }
            Argument::NestedTensors(lists) => {
                lists.iter().flatten().for_each(|tensor| visit(ValueKind::Tensor, &tensor.name));
            }
            Argument::OptionalTensors(tensors) => {
                for tensor in tensors {
                    if let OptionalTensor::Tensor(tensor) = tensor {
                        visit(ValueKind::Tensor, &tensor.name);
                    }
                }
            }
            Argument::SymInt(one) => named(one).into_iter().for_each(|name| visit(ValueKind::SymInt, name)),
            Argument::SymInts(all) => {
                all.iter().filter_map(named).for_each(|name| visit(ValueKind::SymInt, name))
            }
            Argument::SymFloat(one) => {
                named(one).into_iter().for_each(|name| visit(ValueKind::SymFloat, name))
            }
            Argument::SymFloats(all) => {
                all.iter().filter_map(named).for_each(|name| visit(ValueKind::SymFloat, name));
            }
            Argument::SymBool(one) => named(one).into_iter().for_each(|name| visit(ValueKind::SymBool, name)),
            Argument::SymBools(all) => {
                all.iter().filter_map(named).for_each(|name| visit(ValueKind::SymBool, name))
            }
            Argument::Object(object) => visit(ValueKind::Object, &object.name),
            Argument::Dictionary(entries) => entries.values().for_each(|argument| argument.names(visit)),
            _ => {}
        }
    }

    /// The graph inside, if it is one.
    pub fn graphs<'a>(&'a self, visit: &mut impl FnMut(&'a Subgraph)) {
        match self {
            Argument::Graph(graph) => visit(graph),
            Argument::Dictionary(entries) => entries.values().for_each(|argument| argument.graphs(visit)),
            _ => {}
        }
    }
}
