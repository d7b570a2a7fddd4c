//! Flat batches: one run of a method over the tokens of several sessions, which lie one behind the other on its axis of
//! tokens, with a position for each. Prompts and single tokens share a call so. For programs whose tokens meet nowhere but
//! in the session's cache, where each session has its own.

use crate::backend::{Loaded, Part};
use crate::execute::Attempt;
use crate::program::Instruction;
use crate::{Error, Program, Result, RunControl, Session, Value};
use pteron_ir::{TokenRows, token_rows};

/// One session's part in [`Session::run_flat`]. Nobody can hand in a session twice:
///
/// ```compile_fail,E0499
/// # use pteron_runtime::{RunControl, Session, Span};
/// fn twice(session: &mut Session, control: &RunControl) {
///     let mut spans = [Span::new(session, 1, control), Span::new(session, 1, control)];
///     Session::run_flat("forward", &mut spans, &[], &mut Vec::new()).unwrap();
/// }
/// ```
pub struct Span<'a> {
    /// The session; each is of the same program.
    pub session: &'a mut Session,
    /// How many tokens of the inputs are its own: those behind the ones of the span before it.
    pub tokens: usize,
    /// How it is stopped. A run that is listened to runs alone.
    pub control: &'a RunControl,
}

impl<'a> Span<'a> {
    /// So many tokens for a session.
    pub fn new(session: &'a mut Session, tokens: usize, control: &'a RunControl) -> Span<'a> {
        Span { session, tokens, control }
    }

    /// Whether it can take part at all.
    fn check(&self, program: &Program) -> Result<()> {
        if !self.session.program().same(program) {
            return Err(Error::ForeignState);
        }
        if self.tokens == 0 {
            return Err(Error::Invalid("it has no tokens".into()));
        }
        if self.control.trace.is_some() {
            return Err(Error::Invalid("a run that is listened to runs alone".into()));
        }
        self.control.check()
    }
}

impl Program {
    /// Whether a method reads flat batches ([`Session::run_flat`]); an [`Error::NotFlat`] says why it does not.
    pub fn reads_flat(&self, method: &str) -> Result<()> {
        self.flat_rows(method).map(drop)
    }

    fn flat_rows(&self, method: &str) -> Result<&TokenRows> {
        let (inner, position) = (self.inner(), self.position(method)?);
        let not_flat = |reason: &str| Error::NotFlat { method: method.to_owned(), reason: reason.to_owned() };
        if !inner.loaded.runs_flat() {
            return Err(not_flat(&format!("backend `{}` runs one session at a time", self.backend().0)));
        }
        let rows = inner.flat[position].get_or_init(|| self.find_rows(position));
        rows.as_ref().map_err(|reason| not_flat(reason))
    }

    /// The rows of a method that is one delegate and nothing else.
    fn find_rows(&self, position: usize) -> Result<TokenRows, String> {
        let inner = self.inner();
        let (method, info) = (&inner.methods[position], &inner.infos[position]);
        let mut computing = method.chains.iter().flatten().filter(|instruction| {
            !matches!(instruction, Instruction::Move { .. } | Instruction::Free { .. })
        });
        let (Some(Instruction::Delegate { .. }), None, [delegate]) =
            (computing.next(), computing.next(), info.delegates.as_slice())
        else {
            return Err("it is not one delegate alone".into());
        };
        if let Some(buffer) = inner.program_buffers.first() {
            return Err(format!("buffer {} belongs to one session", buffer.id));
        }
        token_rows(&delegate.module.main)
    }
}

impl Session {
    /// Runs a method once for several sessions of one program: its inputs have the tokens of the first span, then those of
    /// the second, and so on, and the position that each token has in the text of its own session. Outputs have a row for
    /// each token, or for each that the inputs ask for, as the method gives them.
    ///
    /// The batch succeeds as a whole or not at all: after an error every session is as it was before, and
    /// [`Error::into_span`] says whose fault it was, where it was that of one of them. Whoever wants the others to go on runs
    /// them again without it.
    pub fn run_flat(
        method: &str,
        spans: &mut [Span<'_>],
        inputs: &[Value],
        outputs: &mut Vec<Value>,
    ) -> Result<()> {
        let Some(first) = spans.first() else {
            return Err(Error::Invalid("a flat batch of no sessions".into()));
        };
        let program = first.session.program().clone();
        let rows = program.flat_rows(method)?;
        for (number, span) in spans.iter().enumerate() {
            span.check(&program).map_err(|error| of_span(number, error))?;
        }
        let wanted = spans.iter().fold(0usize, |sum, span| sum.saturating_add(span.tokens));
        // Who is stopped is asked part by part; what is left is of all of them.
        let control = RunControl::default();
        let [first, rest @ ..] = spans else { return Ok(()) };
        let Span { session, tokens, control: watched } = first;
        let mut run = session.begin(method, inputs, &control)?;
        let mut others: Vec<(Attempt<'_>, usize, &RunControl)> = Vec::with_capacity(rest.len());
        for Span { session, tokens, control } in rest {
            others.push((Attempt::new(session.state_mut()), *tokens, control));
        }
        let Some(graph) = run.execution.advance(outputs)? else {
            return Err(Error::Invalid("the method does nothing".into()));
        };
        check_tokens(rows, run.execution.arguments(), wanted).map_err(|error| run.execution.here(error))?;
        let loaded: &dyn Loaded = program.inner().loaded.as_ref();
        let mut call = run.execution.call();
        let mut parts = vec![Part { state: &mut *call.state, tokens: *tokens, control: watched }];
        for (attempt, tokens, control) in &mut others {
            parts.push(Part { state: &mut *attempt.state, tokens: *tokens, control });
        }
        call.result = loaded.run_flat(graph, &mut parts, call.inputs, call.control, call.outputs);
        let result = call.result;
        run.execution.accept(result)?;
        if run.execution.advance(outputs)?.is_some() {
            return Err(Error::Invalid("the method goes on behind its delegate".into()));
        }
        run.finish(outputs)?;
        for (number, (attempt, ..)) in others.iter_mut().enumerate() {
            attempt.keep().map_err(|error| of_span(number + 1, error))?;
        }
        Ok(())
    }
}

/// Whether every input that has a row for each token has as many as the spans have together.
fn check_tokens(rows: &TokenRows, arguments: &[Value], wanted: usize) -> Result<()> {
    for (number, (axis, argument)) in rows.tokens.iter().zip(arguments).enumerate() {
        let shape = match argument {
            Value::Tensor(tensor) => tensor.shape(),
            Value::Device(tensor) => tensor.shape(),
            _ => &[],
        };
        let found = axis.map(|axis| shape.get(axis).copied().unwrap_or(0));
        if let Some(found) = found.filter(|&found| found != wanted) {
            return Err(Error::Invalid(format!(
                "input {number} has {found} tokens, the sessions of the batch have {wanted}"
            )));
        }
    }
    Ok(())
}

fn of_span(span: usize, source: Error) -> Error {
    Error::Span { span, source: Box::new(source) }
}
