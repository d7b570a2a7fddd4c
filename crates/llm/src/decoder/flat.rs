//! Decoders that read together where a program takes the tokens of several texts in one call: prompts and single tokens go
//! through it side by side, and weights are read once for all of them.
//!
//! Every text is read in the parts that it would be read in alone; a call has parts of as many texts as it has room for.

use super::together::{Reading, call};
use crate::{LanguageModel, LlmError, Result};
use pteron_runtime::{Session, Span, Value};
use pteron_tensor::{Bytes, HostTensor};

/// Reads with all of them until each has come to its end or has failed.
pub(super) fn read(model: &LanguageModel, most: usize, readings: &mut [Reading<'_>]) {
    loop {
        readings.iter_mut().for_each(Reading::read_images);
        let ready = |reading: &&mut Reading<'_>| reading.part().is_some();
        let mut ready: Vec<&mut Reading<'_>> = readings.iter_mut().filter(ready).collect();
        if ready.is_empty() {
            return;
        }
        // Single tokens first: whoever waits for one waits for the fewest others.
        ready.sort_by_key(|reading| reading.part().map_or(0, <[u32]>::len));
        let mut rest = ready.as_mut_slice();
        while !rest.is_empty() {
            let count = fitting(most, rest);
            let (batch, others) = std::mem::take(&mut rest).split_at_mut(count);
            round(model, batch);
            rest = others;
        }
    }
}

/// How many of them have room in one call; at least one.
fn fitting(most: usize, readings: &[&mut Reading<'_>]) -> usize {
    let mut tokens = 0usize;
    let fits = |reading: &&&mut Reading<'_>| {
        tokens = tokens.saturating_add(reading.part().map_or(0, <[u32]>::len));
        tokens <= most
    };
    readings.iter().take_while(fits).count().max(1)
}

/// The next part of each. One that fails leaves the batch, and the others go on in the next round; where nobody is to blame,
/// each reads alone and has its own answer.
fn round(model: &LanguageModel, batch: &mut [&mut Reading<'_>]) {
    // Who listens hears of a run from its beginning to its end.
    let alone = batch.len() == 1 || batch.iter().any(|reading| reading.control.trace.is_some());
    if alone {
        return each_alone(model, batch);
    }
    match flat_call(model, batch) {
        Ok(()) => batch.iter_mut().for_each(|reading| reading.note()),
        Err(LlmError::Run(error)) => match error.into_span() {
            Ok((span, error)) if span < batch.len() => batch[span].result = Err(error.into()),
            _ => each_alone(model, batch),
        },
        Err(_) => each_alone(model, batch),
    }
}

fn each_alone(model: &LanguageModel, batch: &mut [&mut Reading<'_>]) {
    batch.chunks_mut(1).for_each(|one| call(model.decode(), one));
}

/// One call for all of them; logits of those that it reads to the end go to their decoders.
fn flat_call(model: &LanguageModel, batch: &mut [&mut Reading<'_>]) -> Result<()> {
    let signature = model.decode();
    let parts: Vec<&[u32]> = batch.iter().filter_map(|reading| reading.part()).collect();
    let starts = batch.iter().map(|reading| reading.decoder.tokens.len());
    let texts: Vec<(&[u32], usize)> = parts.iter().copied().zip(starts).collect();
    let (mut ending, mut wanted, mut end) = (Vec::new(), Vec::new(), 0);
    for (number, (reading, part)) in batch.iter().zip(&parts).enumerate() {
        end += part.len();
        if reading.ends_with(part) {
            ending.push(number);
            wanted.push(end - 1);
        }
    }
    if wanted.is_empty() {
        // A call gives something, though nobody asks for it yet.
        wanted.push(end - 1);
    }
    let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
    let rows = signature.flat_inputs(&texts, &wanted, &mut inputs)?;
    let each = batch.iter_mut().zip(&parts);
    let mut spans: Vec<Span<'_>> = each
        .map(|(reading, part)| Span::new(&mut reading.decoder.session, part.len(), reading.control))
        .collect();
    Session::run_flat(&signature.method, &mut spans, &inputs, &mut outputs)?;
    drop(spans);
    let output = super::output_of(signature, &mut outputs)?;
    let row = super::row_length(signature, output)?;
    for (number, at) in ending.into_iter().zip(rows) {
        let scores = one_row(output, at, row)?;
        batch[number].decoder.outputs = vec![Value::Tensor(scores)];
    }
    Ok(())
}

/// The logits of one token as a call for it alone would have given them.
fn one_row(output: &HostTensor, at: usize, row: usize) -> Result<HostTensor> {
    let bytes = row * output.dtype().size();
    let found = output.bytes().get(at * bytes..(at + 1) * bytes);
    let missing = || pteron_runtime::Error::Invalid(format!("no logits of row {at} in {:?}", output.shape()));
    let bytes = Bytes::copy_of(found.ok_or_else(missing)?);
    Ok(HostTensor::new(output.dtype(), vec![1, 1, row], bytes).map_err(pteron_runtime::Error::from)?)
}
