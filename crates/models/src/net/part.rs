//! Methods that read something else than tokens: a graph without inputs, to which a part of a model adds its own.

use std::sync::Arc;

use pteron_ir::op::FloatArg;
use pteron_ir::{Builder, Dim, Graph, Op, TensorType, Type, ValueId};
use pteron_tensor::{Bytes, DType};

use super::{Ahead, Net, literal, value};
use crate::model::{KvCache, ModelOptions, Position};
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
        self.first_position();
        self.reads(rows)?;
        Ok(rows)
    }

    /// Makes a part one that goes on where its call before ended, for so many positions and so many rows at once: it is told the
    /// position of its first row, and keeps keys and values in the graph, because the session's caches are another part's.
    pub(crate) fn goes_on(&mut self, context: usize, chunk: usize) {
        (self.options.context, self.options.chunk, self.options.kv) = (context, chunk, KvCache::InGraph);
        self.first_position();
    }

    /// The rows `[1, T, ...]` that the layers to come read.
    pub(crate) fn reads(&mut self, rows: ValueId) -> Result<(), ModelError> {
        self.length = self.op(Op::SymSize { a: rows, dim: 1 })?;
        Ok(())
    }

    fn first_position(&mut self) {
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
    }

    /// Rows of one image, `[1, length, width]`, and the position of the first, as a number.
    pub(crate) fn image_rows(
        &mut self,
        width: usize,
        length: Dim,
        ahead: Ahead,
    ) -> Result<ValueId, ModelError> {
        let shape = vec![Dim::known(1), length, Dim::known(width as i64)];
        let rows = self.input("rows", self.activations(), shape);
        let graph = self.builder.graph_mut();
        let number = graph.symbols.add("P", 0, Some(self.options.context as i64 - 1));
        self.start = Some(graph.add_input("input_pos", Type::Int(Dim::symbol(number))));
        self.length = self.op(Op::SymSize { a: rows, dim: 1 })?;
        if ahead != Ahead::Nowhere {
            let first = self.input_pos()?;
            let end = self.end()?;
            let last = self.subtract_int(value(end), literal(1))?;
            let last = self.op(Op::Full {
                shape: vec![literal(1)],
                v: FloatArg::Value(last),
                scalar_type: DType::I64,
            })?;
            self.column = Some((self.op(Op::Stack { tensors: vec![first, last], axis: 0 })?, ahead));
        }
        Ok(rows)
    }

    /// Gives rows of an image positions along three axes, one more input, and says by which of them each pair of a head turns.
    pub(crate) fn turn_by_axes(&mut self, length: Dim, axes: Vec<usize>) {
        let positions = self.input("positions", DType::I64, vec![Dim::known(3), length]);
        self.axes = Some((positions, axes));
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
