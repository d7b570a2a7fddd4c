//! Methods that read something else than tokens: a graph without inputs, to which a part of a model adds its own.

use std::sync::Arc;

use pteron_ir::{Builder, Dim, Graph, TensorType, Type, ValueId};
use pteron_tensor::DType;

use super::Net;
use crate::model::ModelOptions;
use crate::{ModelError, WeightSource};

impl Net {
    /// A method of that name without inputs. What decoders have from the start (tokens, their position and number) it does
    /// not have.
    pub(crate) fn part(
        source: Arc<dyn WeightSource>,
        options: ModelOptions,
        name: &'static str,
    ) -> Result<Net, ModelError> {
        let mut net = Net::new(source, options, name)?;
        net.builder = Builder::new(Graph { name: name.to_owned(), ..Graph::default() });
        Ok(net)
    }

    /// One more input.
    pub fn input(&mut self, name: &str, dtype: DType, shape: Vec<Dim>) -> ValueId {
        self.builder.graph_mut().add_input(name, Type::Tensor(TensorType { dtype, shape }))
    }

    /// A size of inputs that calls choose, from 1 to that many.
    pub fn symbol(&mut self, name: &str, most: usize) -> Dim {
        Dim::symbol(self.builder.graph_mut().symbols.add(name, 1, Some(most as i64)))
    }
}
