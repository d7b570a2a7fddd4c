//! Recurrent layers, step by step: LSTM and GRU over sequences of known length.

use super::call::{Call, Int};
use super::context::{Bound, Lowerer, Outs};
use super::error::{Lowered, Refusal};
use super::registry::Table;
use super::shape::cut;
use pteron_ir::op::IndexArg;
use pteron_ir::{Op, ValueId};

pub(super) const TABLE: Table = &[("aten.lstm.input", lstm), ("aten.gru.input", gru)];

/// A sequence of that many steps is written out; a longer one would make a program of its own length.
const MOST_STEPS: i64 = 256;

/// The weights of one direction of one layer.
struct Cell {
    of_input: ValueId,
    of_state: ValueId,
    input_bias: Option<ValueId>,
    state_bias: Option<ValueId>,
}

/// The next state of a cell, by its part of the input and its state.
type CellStep = fn(&mut Lowerer<'_>, &Cell, ValueId, &[ValueId]) -> Lowered<Vec<ValueId>>;

/// What all recurrent layers are called with.
struct Layers {
    input: ValueId,
    cells: Vec<Vec<Cell>>,
    batch_first: bool,
}

fn layers(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Layers> {
    if call.flag("train", false)? && call.float("dropout", 0.0)? > 0.0 {
        return Err(Refusal::because("a recurrent layer with dropout; call model.eval() before export"));
    }
    let (params, biases) = (call.tensors("params")?, call.flag("has_biases", true)?);
    let directions = if call.flag("bidirectional", false)? { 2 } else { 1 };
    let each = if biases { 4 } else { 2 };
    let count = usize::try_from(call.int("num_layers", 1)?).unwrap_or(0);
    if params.len() != count * directions * each {
        return Err(Refusal::because("a recurrent layer with projections"));
    }
    let cells: Vec<Cell> = params
        .chunks_exact(each)
        .map(|part| Cell {
            of_input: part[0],
            of_state: part[1],
            input_bias: part.get(2).copied(),
            state_bias: part.get(3).copied(),
        })
        .collect();
    let mut by_layer: Vec<Vec<Cell>> = Vec::new();
    for (at, cell) in cells.into_iter().enumerate() {
        if at % directions == 0 {
            by_layer.push(Vec::new());
        }
        by_layer[at / directions].push(cell);
    }
    let input = call.tensor("input")?;
    if l.rank(input)? != 3 {
        return Err(Refusal::because("a recurrent layer without a batch axis"));
    }
    Ok(Layers { input, cells: by_layer, batch_first: call.flag("batch_first", false)? })
}

fn product(l: &mut Lowerer<'_>, x: ValueId, weight: ValueId, bias: Option<ValueId>) -> Lowered<ValueId> {
    let mat2 = l.swapped(weight)?;
    l.emit(Op::Addmm { mat1: x, mat2, bias, alpha: 1.0, beta: 1.0 })
}

fn pick(l: &mut Lowerer<'_>, x: ValueId, at: usize, axis: usize) -> Lowered<ValueId> {
    l.emit(Op::Take { x, index: IndexArg::Literal(at as i64), axis: axis as i32 })
}

/// Runs all layers; `step` takes the input's part and the state and gives the next state, whose first tensor is
/// what the layer puts out. Gives the outputs and, for each tensor of the state, its last values.
fn run(l: &mut Lowerer<'_>, layers: &Layers, start: &[ValueId], step: CellStep) -> Lowered<Vec<ValueId>> {
    let time = usize::from(layers.batch_first);
    let steps = l.known_dim(layers.input, time)?;
    if !(1..=MOST_STEPS).contains(&steps) {
        return Err(Refusal::because(format!(
            "a recurrent layer over {steps} steps; {MOST_STEPS} are written out"
        )));
    }
    let mut sequence = layers.input;
    let mut last: Vec<Vec<ValueId>> = vec![Vec::new(); start.len()];
    let mut number = 0;
    for layer in &layers.cells {
        let mut sides = Vec::new();
        for (direction, cell) in layer.iter().enumerate() {
            let given = product(l, sequence, cell.of_input, cell.input_bias)?;
            let mut state = start.iter().map(|&x| pick(l, x, number, 0)).collect::<Lowered<Vec<_>>>()?;
            let mut outputs = vec![state[0]; steps as usize];
            for at in 0..steps as usize {
                let at = if direction == 0 { at } else { steps as usize - 1 - at };
                let x = pick(l, given, at, time)?;
                state = step(l, cell, x, &state)?;
                outputs[at] = state[0];
            }
            for (all, value) in last.iter_mut().zip(&state) {
                all.push(*value);
            }
            sides.push(match steps {
                1 => l.emit(Op::ExpandDims { x: outputs[0], axis: time as i32 })?,
                _ => l.emit(Op::Stack { tensors: outputs, axis: time as i32 })?,
            });
            number += 1;
        }
        sequence = match sides.as_slice() {
            [only] => *only,
            _ => l.emit(Op::Concatenate { tensors: sides, axis: 2 })?,
        };
    }
    let mut outs = vec![sequence];
    for tensors in last {
        outs.push(l.emit(Op::Stack { tensors, axis: 0 })?);
    }
    Ok(outs)
}

/// A part of the gates, which lie side by side.
fn gate(l: &mut Lowerer<'_>, gates: ValueId, at: i64, of: i64) -> Lowered<ValueId> {
    let axis = l.rank(gates)? - 1;
    let size = l.known_dim(gates, axis)? / of;
    cut(l, gates, axis, Int::Literal(at * size), Int::Literal((at + 1) * size))
}

fn lstm(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let layers = layers(l, call)?;
    let start = call.tensors("hx")?;
    if start.len() != 2 {
        return Err(Refusal::because("two states are needed"));
    }
    let outs = run(l, &layers, &start, lstm_step)?;
    Ok(outs.into_iter().map(Bound::Tensor).collect())
}

fn lstm_step(l: &mut Lowerer<'_>, cell: &Cell, x: ValueId, state: &[ValueId]) -> Lowered<Vec<ValueId>> {
    let &[hidden, memory] = state else { return Err(Refusal::because("two states are needed")) };
    let own = product(l, hidden, cell.of_state, cell.state_bias)?;
    let gates = l.emit(Op::Add { a: x, b: own })?;
    let opened = |l: &mut Lowerer<'_>, at: i64| -> Lowered<ValueId> {
        let x = gate(l, gates, at, 4)?;
        l.emit(Op::Sigmoid { x })
    };
    let (enter, keep, show) = (opened(l, 0)?, opened(l, 1)?, opened(l, 3)?);
    let x = gate(l, gates, 2, 4)?;
    let new = l.emit(Op::Tanh { x })?;
    let kept = l.emit(Op::Multiply { a: keep, b: memory })?;
    let entered = l.emit(Op::Multiply { a: enter, b: new })?;
    let memory = l.emit(Op::Add { a: kept, b: entered })?;
    let shown = l.emit(Op::Tanh { x: memory })?;
    Ok(vec![l.emit(Op::Multiply { a: show, b: shown })?, memory])
}

fn gru(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let layers = layers(l, call)?;
    let outs = run(l, &layers, &[call.tensor("hx")?], gru_step)?;
    Ok(outs.into_iter().map(Bound::Tensor).collect())
}

fn gru_step(l: &mut Lowerer<'_>, cell: &Cell, x: ValueId, state: &[ValueId]) -> Lowered<Vec<ValueId>> {
    let hidden = state[0];
    let own = product(l, hidden, cell.of_state, cell.state_bias)?;
    let opened = |l: &mut Lowerer<'_>, at: i64| -> Lowered<ValueId> {
        let (a, b) = (gate(l, x, at, 3)?, gate(l, own, at, 3)?);
        let x = l.emit(Op::Add { a, b })?;
        l.emit(Op::Sigmoid { x })
    };
    let (reset, keep) = (opened(l, 0)?, opened(l, 1)?);
    let (given, held) = (gate(l, x, 2, 3)?, gate(l, own, 2, 3)?);
    let held = l.emit(Op::Multiply { a: reset, b: held })?;
    let new = l.emit(Op::Add { a: given, b: held })?;
    let new = l.emit(Op::Tanh { x: new })?;
    let way = l.emit(Op::Subtract { a: hidden, b: new })?;
    let part = l.emit(Op::Multiply { a: keep, b: way })?;
    Ok(vec![l.emit(Op::Add { a: new, b: part })?])
}
