//! Methods that read something else than tokens: a graph without inputs, to which a part of a model adds its own.

use std::sync::Arc;

use pteron_ir::{Builder, Dim, Graph, Op, TensorType, Type, ValueId};
use pteron_tensor::{Bytes, DType};

use super::Net;
use crate::model::{ModelOptions, Position};
use crate::weights::Recipe;
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
        (net.input_pos, net.start) = (None, None);
        Ok(net)
    }

    /// Gives a part the inputs of one that reads a text as a whole: tokens `[1, T]`, the first at position 0, and of as many the kind,
    /// where the model tells kinds of tokens apart.
    pub(crate) fn read_whole(&mut self, has_kinds: bool) -> Result<(), ModelError> {
        let length = self.symbol("T", self.options.context);
        let shape = vec![Dim::known(1), length];
        self.tokens = self.input("tokens", DType::I64, shape.clone());
        self.kinds = has_kinds.then(|| self.input("token_types", DType::I64, shape));
        let first = TensorType::known(DType::I64, &[1]);
        let zero = || Recipe::Literal(Bytes::copy_of(&0i64.to_le_bytes()));
        self.input_pos = Some(self.constant("position.0", first, zero));
        self.start = None;
        self.length = self.op(Op::SymSize { a: self.tokens, dim: 1 })?;
        Ok(())
    }

    /// Rows of a text in place of its tokens, `[1, T, width]`, and the position of the first, as the options have it.
    pub(crate) fn text_rows(&mut self, width: usize) -> Result<ValueId, ModelError> {
        let length = self.symbol("T", self.options.chunk);
        let shape = vec![Dim::known(1), length, Dim::known(width as i64)];
        let rows = self.input("rows", self.activations(), shape);
        match self.options.position {
            Position::Number => {
                let graph = self.builder.graph_mut();
                let number = graph.symbols.add("P", 0, Some(self.options.context as i64 - 1));
                self.start = Some(graph.add_input("input_pos", Type::Int(Dim::symbol(number))));
            }
            Position::Tensor | Position::Each => {
                self.input_pos = Some(self.input("input_pos", DType::I64, vec![Dim::known(1)]));
            }
        }
        self.length = self.op(Op::SymSize { a: rows, dim: 1 })?;
        Ok(rows)
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
