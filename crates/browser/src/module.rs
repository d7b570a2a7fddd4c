//! Programs on tensors.

use crate::model::opening;
use crate::store::File;
use crate::{Result, invalid, read, thrown, told};
use pteron_bindings::{DType, Tensor, Value};
use std::sync::Arc;
use wasm_bindgen::prelude::wasm_bindgen;

/// A program with the state that its methods keep from run to run.
#[wasm_bindgen]
pub struct Module(Arc<pteron_bindings::Module>);

/// Arguments of a run, or its results.
#[wasm_bindgen]
#[derive(Default)]
pub struct Values(Vec<Value>);

#[wasm_bindgen]
impl Values {
    /// None yet.
    #[wasm_bindgen(constructor)]
    pub fn new() -> Values {
        Values::default()
    }

    /// Another tensor, of a copy of its bytes.
    #[wasm_bindgen(js_name = pushTensor)]
    pub fn push_tensor(&mut self, dtype: &str, shape: &[f64], bytes: Vec<u8>) -> Result<()> {
        let dtype: Option<DType> = read("dtype", Some(format!("{dtype:?}")))?;
        let dtype = dtype.ok_or_else(|| invalid("there is no such dtype".to_owned()))?;
        let shape = shape.iter().map(|&dim| dim as u64).collect();
        let tensor = Tensor::new(dtype, shape, bytes).map_err(thrown)?;
        self.0.push(Value::Tensor { tensor });
        Ok(())
    }

    /// Another integer.
    #[wasm_bindgen(js_name = pushInt)]
    pub fn push_int(&mut self, value: i64) {
        self.0.push(Value::Int { value });
    }

    /// Another number.
    #[wasm_bindgen(js_name = pushDouble)]
    pub fn push_double(&mut self, value: f64) {
        self.0.push(Value::Double { value });
    }

    /// Another truth value.
    #[wasm_bindgen(js_name = pushBool)]
    pub fn push_bool(&mut self, value: bool) {
        self.0.push(Value::Bool { value });
    }

    /// Nothing, as an argument.
    #[wasm_bindgen(js_name = pushNothing)]
    pub fn push_nothing(&mut self) {
        self.0.push(Value::Nothing);
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// What one of them is, as JSON: `tensor` with its dtype and shape, or `value`.
    pub fn about(&self, index: usize) -> Result<String> {
        use serde_json::json;
        let none = || invalid(format!("there are {} values", self.0.len()));
        told(&match self.0.get(index).ok_or_else(none)? {
            Value::Tensor { tensor } => {
                json!({"tensor": {"dtype": tensor.dtype().map_err(thrown)?, "shape": tensor.shape()}})
            }
            Value::Int { value } => json!({"value": value}),
            Value::Double { value } => json!({"value": value}),
            Value::Bool { value } => json!({"value": value}),
            Value::Text { value } => json!({"value": value}),
            Value::Ints { values } => json!({"value": values}),
            Value::Doubles { values } => json!({"value": values}),
            Value::Bools { values } => json!({"value": values}),
            Value::Tensors { .. } | Value::Nothing => json!({"value": null}),
        })
    }

    /// A copy of a tensor's bytes; none where it is none.
    pub fn bytes(&self, index: usize) -> Option<Vec<u8>> {
        match self.0.get(index) {
            Some(Value::Tensor { tensor }) => Some(tensor.bytes()),
            _ => None,
        }
    }
}

#[wasm_bindgen]
impl Module {
    /// Loads a program in memory.
    pub fn load(file: File, options: Option<String>) -> Result<Module> {
        let (options, (name, bytes)) = (opening(options)?, file.whole());
        Ok(Module(pteron_bindings::Module::of_memory(&name, bytes, options).map_err(thrown)?))
    }

    /// What each method takes and gives, as JSON.
    pub fn methods(&self) -> Result<String> {
        let names = self.0.method_names();
        let all: std::result::Result<Vec<_>, _> =
            names.into_iter().map(|name| self.0.method_metadata(name)).collect();
        told(&all.map_err(thrown)?)
    }

    /// Runs a method.
    pub fn execute(&self, method: String, inputs: Values) -> Result<Values> {
        Ok(Values(self.0.execute(method, inputs.0).map_err(thrown)?))
    }

    /// Forgets what earlier runs have left.
    pub fn reset(&self) -> Result<()> {
        self.0.reset().map_err(thrown)
    }

    /// Gives the memory back.
    pub fn dispose(&self) {
        self.0.dispose();
    }
}
