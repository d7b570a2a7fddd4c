//! Every activation against what that of `transformers` gives (`activations.json`, made by `make_activations.py`).

#![allow(clippy::unwrap_used)] // whatever cannot be had fails its test

use std::ops::Range;
use std::sync::Arc;

use pteron_ir::ValueId;
use pteron_models::blocks::{Activation, embed, matrix};
use pteron_models::{
    Architecture, Facts, Form, Logits, Model, ModelError, ModelOptions, Net, Wanted, WeightError,
    WeightSource,
};
use pteron_runtime::{Options, Program, Value};
use pteron_tensor::{Bytes, DType, HostTensor};

/// A model that is nothing but an activation: its only embedding is what goes in, its logits are what comes out.
struct Curve {
    activation: Activation,
    points: usize,
}

/// The embedding.
struct Points(Vec<f32>);

impl Architecture for Curve {
    fn facts(&self) -> Facts {
        Facts { vocab_size: 1, layers: 0, bos: None, eos: vec![], context: 8 }
    }

    fn build(&self, net: &mut Net) -> Result<ValueId, ModelError> {
        let table = matrix(net, "points.weight", 1, self.points)?;
        let x = embed(net, table, net.tokens())?;
        let y = self.activation.apply(net, x)?;
        assert_eq!(net.dtype(y), Some(net.activations()));
        net.cast(y, DType::F32)
    }
}

impl WeightSource for Points {
    fn form(&self, _: Wanted<'_>) -> Result<Form, WeightError> {
        Ok(Form::Floats)
    }

    fn read(&self, _: Wanted<'_>, elements: Range<usize>, out: &mut [f32]) -> Result<(), WeightError> {
        out.copy_from_slice(&self.0[elements]);
        Ok(())
    }
}

fn outputs(activation: Activation, inputs: &[f32], activations: DType) -> Vec<f32> {
    let options =
        ModelOptions { activations, context: 8, chunk: 8, logits: Logits::All, ..Default::default() };
    let curve = Curve { activation, points: inputs.len() };
    let model = Model::build(&curve, Arc::new(Points(inputs.to_vec())), options).unwrap();
    let mut file = Vec::new();
    model.program(|_| ()).unwrap().write(&Default::default(), &mut file).unwrap();
    let program = Program::load("curve.pte", Bytes::copy_of(&file), &[], &Options::default()).unwrap();
    let tokens: Value = HostTensor::from_slice(vec![1, 1], &[0i64]).unwrap().into();
    let position: Value = HostTensor::from_slice(vec![1], &[0i64]).unwrap().into();
    let outputs = program.session().unwrap().run("forward", &[tokens, position]).unwrap();
    outputs[0].to_tensor().unwrap().unwrap().as_slice::<f32>().unwrap().to_vec()
}

#[test]
fn every_activation_is_that_of_transformers() {
    let table: serde_json::Value = serde_json::from_str(include_str!("activations.json")).unwrap();
    let row = |name: &str| -> Vec<f32> {
        let row = table[name].as_array().unwrap_or_else(|| panic!("{name} has no numbers"));
        row.iter().map(|number| number.as_f64().unwrap() as f32).collect()
    };
    let inputs = row("inputs");
    assert_eq!(table.as_object().unwrap().len(), 1 + Activation::names().count());
    for name in Activation::names() {
        let activation = Activation::named(name).unwrap();
        // Rounding moves what goes in and what comes out by so much; no activation is steeper than `x * x` at 25.
        for (dtype, relative, absolute) in [(DType::F32, 2e-6, 2e-6), (DType::BF16, 2e-2, 2e-3)] {
            for ((x, got), want) in inputs.iter().zip(outputs(activation, &inputs, dtype)).zip(row(name)) {
                let off = (got - want).abs();
                assert!(off <= absolute + relative * want.abs(), "{name}({x}) in {dtype}: {got}, not {want}");
            }
        }
    }
}
