//! Runs statements: scopes, loops, blocks that are captured, and where the text goes.

use super::ast::{For, Macro, Statement, StatementKind, Step, Target};
use super::budget::{Budget, Fault};
use super::text::{Text, Written};
use super::time::LocalTime;
use super::value::{Items, Loop, Value};
use indexmap::IndexMap;
use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

/// Levels of evaluation inside each other; macros that call themselves without end meet this.
const MAX_DEPTH: usize = 350;

/// One rendering of one template.
pub(super) struct Interpreter<'t> {
    pub(super) budget: Budget,
    pub(super) now: LocalTime,
    /// The line of the statement at hand, for errors.
    pub(super) line: usize,
    /// All scopes; the first holds the variables of the call.
    scopes: Vec<Scope>,
    pub(super) scope: usize,
    pub(super) macros: Vec<MacroValue<'t>>,
    pub(super) namespaces: Vec<IndexMap<Arc<str>, Value>>,
    /// For `cycler` and `joiner`: the items and how often it was asked.
    pub(super) cyclers: Vec<(Rc<Items>, usize)>,
    pub(super) joiners: Vec<(Text, bool)>,
    /// What `loop.changed` saw last, by loop.
    pub(super) changed: HashMap<usize, Value>,
    pub(super) recursive_loops: Vec<&'t For>,
    loop_count: usize,
    depth: usize,
    out: Written,
}

#[derive(Debug, Default)]
struct Scope {
    parent: Option<usize>,
    variables: Vec<(Arc<str>, Value)>,
}

/// A macro and where it was written.
#[derive(Clone, Copy)]
pub(super) struct MacroValue<'t> {
    pub(super) definition: &'t Macro,
    pub(super) scope: usize,
}

/// How a run of statements ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    On,
    Break,
    Continue,
}

impl<'t> Interpreter<'t> {
    pub(super) fn new(budget: Budget, now: LocalTime) -> Interpreter<'t> {
        Interpreter {
            budget,
            now,
            line: 1,
            // Variables of the call, and above them what the template itself sets.
            scopes: vec![Scope::default(), Scope { parent: Some(0), variables: Vec::new() }],
            scope: 1,
            macros: Vec::new(),
            namespaces: Vec::new(),
            cyclers: Vec::new(),
            joiners: Vec::new(),
            changed: HashMap::new(),
            recursive_loops: Vec::new(),
            loop_count: 0,
            depth: 0,
            out: Written::default(),
        }
    }

    /// Gives the template a variable of the call.
    pub(super) fn define(&mut self, name: &str, value: Value) {
        self.scopes[0].variables.push((name.into(), value));
    }

    /// The whole template.
    pub(super) fn render(&mut self, statements: &'t [Statement]) -> Result<Written, Fault> {
        self.run(statements)?;
        Ok(std::mem::take(&mut self.out))
    }

    pub(super) fn run(&mut self, statements: &'t [Statement]) -> Result<Flow, Fault> {
        self.deeper(|interpreter| {
            for statement in statements {
                interpreter.line = statement.line;
                match interpreter.statement(&statement.kind)? {
                    Flow::On => {}
                    other => return Ok(other),
                }
            }
            Ok(Flow::On)
        })
    }

    /// Does something one level deeper, and pays a step for it.
    pub(super) fn deeper<T>(
        &mut self,
        part: impl FnOnce(&mut Interpreter<'t>) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        self.budget.steps(1)?;
        if self.depth >= MAX_DEPTH {
            return Err(Fault::Limit { what: "levels of evaluation", limit: MAX_DEPTH as u64 });
        }
        self.depth += 1;
        let result = part(self);
        self.depth -= 1;
        result
    }

    fn statement(&mut self, statement: &'t StatementKind) -> Result<Flow, Fault> {
        match statement {
            StatementKind::Text(text) => self.write(&Text::own(text.clone()))?,
            StatementKind::Print(expression) => {
                let value = self.evaluate(expression)?;
                let text = self.str(&value)?;
                self.write(&text)?;
            }
            StatementKind::If { branches, otherwise } => {
                for (condition, body) in branches {
                    if self.evaluate(condition)?.is_true() {
                        return self.run(body);
                    }
                }
                return self.run(otherwise);
            }
            StatementKind::For(node) => {
                let items = self.evaluate(&node.items)?;
                let recursive = node.recursive.then(|| {
                    self.recursive_loops.push(node);
                    (self.recursive_loops.len() - 1, self.scope)
                });
                self.run_loop(node, &items, 0, recursive)?;
            }
            StatementKind::Set { target, value } => {
                let value = self.evaluate(value)?;
                self.assign(target, value)?;
            }
            StatementKind::SetBlock { target, filters, body } => {
                let value = self.filtered_block(filters, body)?;
                self.assign(target, value)?;
            }
            StatementKind::Macro(definition) => {
                let value = self.macro_value(definition)?;
                self.set(&definition.name, value)?;
            }
            StatementKind::Call { call, caller } => {
                let caller = self.macro_value(caller)?;
                let value = self.evaluate_call_block(call, caller)?;
                let text = self.str(&value)?;
                self.write(&text)?;
            }
            StatementKind::Filter { filters, body } => {
                let value = self.filtered_block(filters, body)?;
                let text = self.str(&value)?;
                self.write(&text)?;
            }
            StatementKind::With { values, body } => {
                // All values are of the outer scope, all names of the inner one.
                let values = values.iter().map(|(target, value)| Ok((target, self.evaluate(value)?)));
                let values: Vec<(&Target, Value)> = values.collect::<Result<_, Fault>>()?;
                return self.scoped(|interpreter| {
                    for (target, value) in values {
                        interpreter.assign(target, value)?;
                    }
                    interpreter.run(body)
                });
            }
            StatementKind::Scope(body) => return self.scoped(|interpreter| interpreter.run(body)),
            StatementKind::Break => return Ok(Flow::Break),
            StatementKind::Continue => return Ok(Flow::Continue),
        }
        Ok(Flow::On)
    }

    fn write(&mut self, text: &Text) -> Result<(), Fault> {
        self.budget.bytes(text.cost())?;
        self.out.push(text);
        Ok(())
    }

    /// The text that a part of the template writes.
    pub(super) fn capture(
        &mut self,
        part: impl FnOnce(&mut Interpreter<'t>) -> Result<(), Fault>,
    ) -> Result<Value, Fault> {
        let outer = std::mem::take(&mut self.out);
        let result = part(self);
        let inner = std::mem::replace(&mut self.out, outer);
        result?;
        self.budget.text(inner.finish())
    }

    fn filtered_block(&mut self, filters: &'t [Step], body: &'t [Statement]) -> Result<Value, Fault> {
        let captured =
            self.capture(|interpreter| interpreter.scoped(|interpreter| interpreter.run(body)).map(|_| ()))?;
        self.apply_steps(captured, filters)
    }

    /// Does something in a scope of its own, whose parent is the one at hand.
    pub(super) fn scoped<T>(
        &mut self,
        part: impl FnOnce(&mut Interpreter<'t>) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        self.scoped_in(self.scope, part)
    }

    pub(super) fn scoped_in<T>(
        &mut self,
        parent: usize,
        part: impl FnOnce(&mut Interpreter<'t>) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let (outer, macros, loops) = (self.scope, self.macros.len(), self.recursive_loops.len());
        self.scopes.push(Scope { parent: Some(parent), variables: Vec::new() });
        self.budget.bytes(size_of::<Scope>())?;
        let inner = self.scopes.len() - 1;
        self.scope = inner;
        let result = part(self);
        self.scope = outer;
        // Nothing can speak of the scope any more, unless a macro or a recursive loop was begun in it.
        if self.macros.len() == macros && self.recursive_loops.len() == loops {
            self.scopes.truncate(inner);
        }
        result
    }

    /// Sets a variable in the scope at hand.
    pub(super) fn set(&mut self, name: &Arc<str>, value: Value) -> Result<(), Fault> {
        let variables = &mut self.scopes[self.scope].variables;
        self.budget.steps(variables.len() / 8)?;
        if let Some((_, old)) = variables.iter_mut().find(|(known, _)| known == name) {
            *old = value;
            return Ok(());
        }
        self.budget.bytes(size_of::<(Arc<str>, Value)>())?;
        variables.push((name.clone(), value));
        Ok(())
    }

    /// The value of a name, from the scope at hand outwards.
    pub(super) fn look_up(&mut self, name: &str) -> Result<Option<Value>, Fault> {
        let mut scope = Some(self.scope);
        while let Some(at) = scope {
            let Scope { parent, variables } = &self.scopes[at];
            self.budget.steps(1 + variables.len() / 8)?;
            if let Some((_, value)) = variables.iter().find(|(known, _)| **known == *name) {
                return Ok(Some(value.clone()));
            }
            scope = *parent;
        }
        Ok(None)
    }

    fn assign(&mut self, target: &Target, value: Value) -> Result<(), Fault> {
        match target {
            Target::Name(name) => self.set(name, value),
            Target::Attribute(namespace, name) => match self.look_up(namespace)? {
                Some(Value::Namespace(_)) if name.starts_with('_') => {
                    Fault::evaluation(format!("a namespace takes no attribute `{name}` that starts with `_`"))
                }
                Some(Value::Namespace(id)) => {
                    self.budget.bytes(3 * size_of::<Value>())?;
                    self.namespaces[id].insert(name.clone(), value);
                    Ok(())
                }
                _ => Fault::evaluation("cannot assign attribute on non-namespace object"),
            },
            Target::Tuple(targets) => {
                let values = self.walk(&value)?;
                if values.values.len() != targets.len() {
                    return Fault::evaluation(format!(
                        "cannot unpack {} values into {} names",
                        values.values.len(),
                        targets.len()
                    ));
                }
                for (target, value) in targets.iter().zip(&values.values) {
                    self.assign(target, value.clone())?;
                }
                Ok(())
            }
        }
    }

    fn macro_value(&mut self, definition: &'t Macro) -> Result<Value, Fault> {
        self.budget.bytes(size_of::<MacroValue<'_>>())?;
        self.macros.push(MacroValue { definition, scope: self.scope });
        Ok(Value::Macro(self.macros.len() - 1))
    }

    /// Runs a loop over a value, in the scope at hand.
    pub(super) fn run_loop(
        &mut self,
        node: &'t For,
        items: &Value,
        depth: usize,
        recursive: Option<(usize, usize)>,
    ) -> Result<(), Fault> {
        let mut items = self.walk(items)?;
        if let Some(condition) = &node.condition {
            let mut kept = Vec::new();
            for item in &items.values {
                let keeps = self.scoped(|interpreter| {
                    interpreter.assign(&node.target, item.clone())?;
                    Ok(interpreter.evaluate(condition)?.is_true())
                })?;
                if keeps {
                    kept.push(item.clone());
                }
            }
            items = self.budget.items(kept)?;
        }
        if items.values.is_empty() {
            return self.scoped(|interpreter| interpreter.run(&node.otherwise)).map(|_| ());
        }
        self.budget.bytes(size_of::<Loop>())?;
        self.loop_count += 1;
        let id = self.loop_count;
        let state = Rc::new(Loop { id, items: items.clone(), index: Cell::new(0), depth, recursive });
        let name: Arc<str> = "loop".into();
        for (index, item) in items.values.iter().enumerate() {
            state.index.set(index);
            let flow = self.scoped(|interpreter| {
                interpreter.set(&name, Value::Loop(state.clone()))?;
                interpreter.assign(&node.target, item.clone())?;
                interpreter.run(&node.body)
            })?;
            if flow == Flow::Break {
                break;
            }
        }
        self.changed.remove(&id);
        Ok(())
    }
}
