//! Any program, on tensors: what ExecuTorch calls a `Module`.

use crate::error::{PteronError, Result};
use crate::open::OpenOptions;
use crate::slot::Slot;
use crate::tensor::{DType, Tensor};
use serde::Serialize;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// An argument or a result: what ExecuTorch calls an `EValue`.
#[derive(Clone, Debug, uniffi::Enum)]
pub enum Value {
    /// A tensor.
    Tensor {
        /// The tensor.
        tensor: Arc<Tensor>,
    },
    /// An integer.
    Int {
        /// The number.
        value: i64,
    },
    /// A float.
    Double {
        /// The number.
        value: f64,
    },
    /// A truth value.
    Bool {
        /// Whether it holds.
        value: bool,
    },
    /// Text.
    Text {
        /// The text.
        value: String,
    },
    /// A list of integers.
    Ints {
        /// The numbers.
        values: Vec<i64>,
    },
    /// A list of floats.
    Doubles {
        /// The numbers.
        values: Vec<f64>,
    },
    /// A list of truth values.
    Bools {
        /// The values.
        values: Vec<bool>,
    },
    /// A list of tensors, some of which may be absent.
    Tensors {
        /// The tensors.
        tensors: Vec<Option<Arc<Tensor>>>,
    },
    /// Nothing.
    Nothing,
}

impl Value {
    fn facade(self) -> pteron::Value {
        match self {
            Value::Tensor { tensor } => pteron::Value::Tensor(tensor.0.clone()),
            Value::Int { value } => pteron::Value::Int(value),
            Value::Double { value } => pteron::Value::Float(value),
            Value::Bool { value } => pteron::Value::Bool(value),
            Value::Text { value } => pteron::Value::Str(value),
            Value::Ints { values } => pteron::Value::Ints(values),
            Value::Doubles { values } => pteron::Value::Floats(values),
            Value::Bools { values } => pteron::Value::Bools(values),
            Value::Tensors { tensors } => {
                let tensors = tensors.into_iter().map(|tensor| tensor.map(|tensor| tensor.0.clone()));
                pteron::Value::Tensors(tensors.collect())
            }
            Value::Nothing => pteron::Value::None,
        }
    }

    fn of(value: pteron::Value) -> Result<Value> {
        let held = |tensor: pteron::HostTensor| Arc::new(Tensor(tensor));
        Ok(match value {
            pteron::Value::Tensor(tensor) => Value::Tensor { tensor: held(tensor) },
            pteron::Value::Device(tensor) => {
                Value::Tensor { tensor: held(tensor.to_host().map_err(pteron::Error::from)?) }
            }
            pteron::Value::Int(value) => Value::Int { value },
            pteron::Value::Float(value) => Value::Double { value },
            pteron::Value::Bool(value) => Value::Bool { value },
            pteron::Value::Str(value) => Value::Text { value },
            pteron::Value::Ints(values) => Value::Ints { values },
            pteron::Value::Floats(values) => Value::Doubles { values },
            pteron::Value::Bools(values) => Value::Bools { values },
            pteron::Value::Tensors(tensors) => {
                Value::Tensors { tensors: tensors.into_iter().map(|tensor| tensor.map(held)).collect() }
            }
            pteron::Value::None => Value::Nothing,
        })
    }
}

/// What is known of one dim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, uniffi::Record)]
pub struct Dim {
    /// The least size that the file declares.
    pub min: u64,
    /// The largest size; none where the file sets none.
    pub max: Option<u64>,
}

/// What an input or output is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, uniffi::Enum)]
#[serde(rename_all = "lowercase")]
pub enum ArgumentKind {
    /// A tensor with bounds for every dim.
    Tensor {
        /// Element type.
        dtype: DType,
        /// Dims, outermost first.
        dims: Vec<Dim>,
    },
    /// An integer.
    Int,
    /// A value that was fixed when the program was made, as text; only that value is accepted.
    Fixed {
        /// The value.
        value: String,
    },
}

/// An input or output of a method.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, uniffi::Record)]
pub struct Argument {
    /// Its name in the file; empty where the file has none.
    pub name: String,
    /// What it is.
    pub kind: ArgumentKind,
}

/// What a method takes and gives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, uniffi::Record)]
pub struct MethodMetadata {
    /// Its name.
    pub name: String,
    /// What it takes, in order.
    pub inputs: Vec<Argument>,
    /// What it gives, in order.
    pub outputs: Vec<Argument>,
}

/// A program, loaded, with the state that its methods keep from run to run.
#[derive(uniffi::Object)]
pub struct Module {
    slot: Arc<Slot<pteron::Session>>,
    methods: Vec<MethodMetadata>,
    /// What ends the run that is under way.
    cancel: Mutex<pteron::Cancel>,
}

/// The method that most programs have.
const FORWARD: &str = "forward";

impl Module {
    /// Loads a program in memory.
    pub fn of_memory(
        name: &str,
        bytes: pteron::Bytes,
        options: Option<OpenOptions>,
    ) -> Result<Arc<Module>, PteronError> {
        let runtime = options.unwrap_or_default().facade().runtime()?;
        // Parts of it are to be shared, whoever holds it.
        let program = pteron::Program::load(name, bytes.counted_apart(), &[], &runtime);
        Module::of(&program.map_err(pteron::Error::from)?)
    }

    fn of(program: &pteron::Program) -> Result<Arc<Module>> {
        let methods = program.methods().iter().map(method).collect::<Result<Vec<_>>>()?;
        let session = program.session().map_err(pteron::Error::from)?;
        Ok(Arc::new(Module { slot: Slot::new("module", session), methods, cancel: Mutex::default() }))
    }
}

#[uniffi::export]
impl Module {
    /// Loads a program (`.pte`), with external data (`.ptd`) where it has some.
    #[uniffi::constructor(default(data = [], options = None))]
    pub fn load(
        path: String,
        data: Vec<String>,
        options: Option<OpenOptions>,
    ) -> Result<Arc<Module>, PteronError> {
        let runtime = options.unwrap_or_default().facade().runtime()?;
        let data: Vec<PathBuf> = data.into_iter().map(PathBuf::from).collect();
        let data: Vec<&Path> = data.iter().map(PathBuf::as_path).collect();
        let program =
            pteron::Program::open(Path::new(&path), &data, &runtime).map_err(pteron::Error::from)?;
        Module::of(&program)
    }

    /// The names of its methods.
    pub fn method_names(&self) -> Vec<String> {
        self.methods.iter().map(|method| method.name.clone()).collect()
    }

    /// What a method takes and gives.
    pub fn method_metadata(&self, name: String) -> Result<MethodMetadata, PteronError> {
        let found = self.methods.iter().find(|method| method.name == name);
        let missing = || PteronError::Unsupported { reason: format!("there is no method `{name}`") };
        found.cloned().ok_or_else(missing)
    }

    /// Numbers and texts that the file carries as methods without inputs.
    pub fn metadata(&self) -> Result<HashMap<String, Vec<Value>>, PteronError> {
        let session = self.slot.lend()?;
        let all = session.program().metadata().iter().map(|(name, values)| {
            let values = values.iter().map(|value| Value::of(value.clone())).collect::<Result<Vec<_>>>()?;
            Ok((name.clone(), values))
        });
        all.collect()
    }

    /// Runs a method.
    pub fn execute(&self, method: String, inputs: Vec<Value>) -> Result<Vec<Value>, PteronError> {
        let inputs: Vec<pteron::Value> = inputs.into_iter().map(Value::facade).collect();
        let mut session = self.slot.lend()?;
        let cancel = pteron::Cancel::default();
        *self.cancel.lock().unwrap_or_else(PoisonError::into_inner) = cancel.clone();
        let control = pteron::RunControl { cancel: Some(cancel.flag()), ..pteron::RunControl::default() };
        let outputs = session.run_with(&method, &inputs, &control).map_err(pteron::Error::from)?;
        outputs.into_iter().map(Value::of).collect()
    }

    /// Runs the method `forward`.
    pub fn forward(&self, inputs: Vec<Value>) -> Result<Vec<Value>, PteronError> {
        self.execute(FORWARD.to_owned(), inputs)
    }

    /// Forgets what earlier runs have left.
    pub fn reset(&self) -> Result<(), PteronError> {
        Ok(self.slot.lend()?.reset().map_err(pteron::Error::from)?)
    }

    /// Ends the run that is under way, from any thread; the state is then as before it.
    pub fn stop(&self) {
        self.cancel.lock().unwrap_or_else(PoisonError::into_inner).cancel();
    }

    /// Cancels the run that is under way, waits for its end, and gives the memory back.
    pub fn dispose(&self) {
        self.slot.dispose(|| self.stop());
    }
}

fn method(info: &pteron::MethodInfo) -> Result<MethodMetadata> {
    let all = |arguments: &[pteron::Argument]| arguments.iter().map(argument).collect::<Result<Vec<_>>>();
    Ok(MethodMetadata { name: info.name.clone(), inputs: all(&info.inputs)?, outputs: all(&info.outputs)? })
}

fn argument(argument: &pteron::Argument) -> Result<Argument> {
    let kind = match &argument.kind {
        pteron::ArgumentKind::Tensor { dtype, dims } => {
            let dim =
                |bound: &pteron::Bound| Dim { min: bound.min as u64, max: bound.max.map(|max| max as u64) };
            ArgumentKind::Tensor { dtype: DType::of(*dtype)?, dims: dims.iter().map(dim).collect() }
        }
        pteron::ArgumentKind::Int => ArgumentKind::Int,
        pteron::ArgumentKind::Fixed(value) => ArgumentKind::Fixed { value: value.clone() },
    };
    Ok(Argument { name: argument.name.clone(), kind })
}
