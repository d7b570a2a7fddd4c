//! Tokens to statements. The grammar is jinja2's own, tag by tag.

use super::ast::{Expression, For, Macro, Parameter, Statement, StatementKind, Step, Target};
use super::error::TemplateError;
use super::lexer::{Lexeme, Token, tokenize};
use std::sync::Arc;

/// No template that people wrote comes near; deeper ones would only wear out the stack.
const MAX_DEPTH: usize = 160;
/// The largest template that is read.
const MAX_SOURCE_BYTES: usize = 1 << 20;

/// Reads a template.
pub(super) fn parse(source: &str) -> Result<Vec<Statement>, TemplateError> {
    if source.len() > MAX_SOURCE_BYTES {
        return Err(TemplateError::Limit { what: "bytes of source", limit: MAX_SOURCE_BYTES as u64 });
    }
    let mut parser = Parser { lexemes: tokenize(source)?, at: 0, depth: 0, loops: 0, words: Vec::new() };
    let (statements, _) = parser.statements(&[])?;
    Ok(statements)
}

pub(super) struct Parser {
    lexemes: Vec<Lexeme>,
    at: usize,
    depth: usize,
    /// How many loops are open, for `break` and `continue`.
    loops: usize,
    /// Names that were read since a macro began, for `varargs`, `kwargs` and `caller`.
    words: Vec<&'static str>,
}

impl Parser {
    pub(super) fn peek(&self) -> &Token {
        // The last lexeme is the end, which is never passed.
        &self.lexemes[self.at.min(self.lexemes.len() - 1)].token
    }

    pub(super) fn peek_second(&self) -> &Token {
        &self.lexemes[(self.at + 1).min(self.lexemes.len() - 1)].token
    }

    pub(super) fn line(&self) -> usize {
        self.lexemes[self.at.min(self.lexemes.len() - 1)].line
    }

    pub(super) fn next(&mut self) -> Token {
        let token = self.peek().clone();
        self.at = (self.at + 1).min(self.lexemes.len() - 1);
        token
    }

    pub(super) fn error<T>(&self, message: impl Into<String>) -> Result<T, TemplateError> {
        Err(TemplateError::Syntax { line: self.line(), message: message.into() })
    }

    pub(super) fn unexpected<T>(&self, wanted: &str) -> Result<T, TemplateError> {
        let found = match self.peek() {
            Token::Text(_) => "text".to_owned(),
            Token::PrintBegin => "`{{`".to_owned(),
            Token::PrintEnd => "`}}`".to_owned(),
            Token::TagBegin => "`{%`".to_owned(),
            Token::TagEnd => "`%}`".to_owned(),
            Token::Name(name) => format!("`{name}`"),
            Token::Str(_) => "a string".to_owned(),
            Token::Int(_) | Token::Float(_) => "a number".to_owned(),
            Token::Op(op) => format!("`{op}`"),
            Token::End => "the end of the template".to_owned(),
        };
        self.error(format!("expected {wanted}, found {found}"))
    }

    /// Runs a part of the parser one level deeper.
    pub(super) fn nested<T>(
        &mut self,
        part: impl FnOnce(&mut Parser) -> Result<T, TemplateError>,
    ) -> Result<T, TemplateError> {
        if self.depth >= MAX_DEPTH {
            return Err(TemplateError::Limit { what: "levels of nesting", limit: MAX_DEPTH as u64 });
        }
        self.depth += 1;
        let result = part(self);
        self.depth -= 1;
        result
    }

    pub(super) fn is_op(&self, op: &str) -> bool {
        matches!(self.peek(), Token::Op(found) if *found == op)
    }

    pub(super) fn skip_op(&mut self, op: &str) -> bool {
        let found = self.is_op(op);
        if found {
            self.next();
        }
        found
    }

    pub(super) fn expect_op(&mut self, op: &str) -> Result<(), TemplateError> {
        if self.skip_op(op) { Ok(()) } else { self.unexpected(&format!("`{op}`")) }
    }

    pub(super) fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Token::Name(name) if name == word)
    }

    pub(super) fn skip_word(&mut self, word: &str) -> bool {
        let found = self.is_word(word);
        if found {
            self.next();
        }
        found
    }

    pub(super) fn name(&mut self) -> Result<Arc<str>, TemplateError> {
        match self.peek() {
            Token::Name(name) => {
                let name: Arc<str> = name.as_str().into();
                self.next();
                Ok(name)
            }
            _ => self.unexpected("a name"),
        }
    }

    /// Remembers that a name was read which makes a macro take more than its parameters.
    pub(super) fn note_word(&mut self, name: &str) {
        let known = ["varargs", "kwargs", "caller"].into_iter().find(|word| *word == name);
        self.words.extend(known.filter(|word| !self.words.contains(word)));
    }

    /// Statements up to a tag of one of these names, whose name is given back with its tag still open; without
    /// names, up to the end.
    fn statements(&mut self, ends: &[&str]) -> Result<(Vec<Statement>, String), TemplateError> {
        self.nested(|parser| parser.statements_here(ends))
    }

    fn statements_here(&mut self, ends: &[&str]) -> Result<(Vec<Statement>, String), TemplateError> {
        let mut statements = Vec::new();
        loop {
            let line = self.line();
            let kind = match self.next() {
                Token::Text(text) => StatementKind::Text(text.into()),
                Token::PrintBegin => {
                    let value = self.tuple(true)?;
                    if *self.peek() != Token::PrintEnd {
                        return self.unexpected("`}}`");
                    }
                    self.next();
                    StatementKind::Print(value)
                }
                Token::TagBegin => {
                    let Token::Name(tag) = self.peek().clone() else {
                        return self.unexpected("the name of a tag");
                    };
                    self.next();
                    if ends.contains(&tag.as_str()) {
                        return Ok((statements, tag));
                    }
                    self.tag(&tag)?
                }
                Token::End if ends.is_empty() => return Ok((statements, String::new())),
                Token::End => {
                    return self.error(format!("the template ends before `{}`", ends.join("` or `")));
                }
                _ => return self.unexpected("text or a tag"),
            };
            statements.push(Statement { line, kind });
        }
    }

    /// Statements up to this closing tag, and the rest of that tag.
    fn body(&mut self, end: &str) -> Result<Vec<Statement>, TemplateError> {
        let (statements, _) = self.statements(&[end])?;
        self.tag_end()?;
        Ok(statements)
    }

    fn tag_end(&mut self) -> Result<(), TemplateError> {
        if *self.peek() != Token::TagEnd {
            return self.unexpected("`%}`");
        }
        self.next();
        Ok(())
    }

    fn tag(&mut self, tag: &str) -> Result<StatementKind, TemplateError> {
        match tag {
            "if" => self.if_tag(),
            "for" => self.for_tag(),
            "set" => self.set_tag(),
            "macro" => {
                let name = self.name()?;
                self.macro_tag(name, "endmacro").map(StatementKind::Macro)
            }
            "call" => {
                let parameters = if self.is_op("(") { self.parameters()? } else { Vec::new() };
                let call = self.expression(true)?;
                if !matches!(&call, Expression::Chain(_, steps) if matches!(steps.last(), Some(Step::Call(_))))
                {
                    return self.error("`call` needs a call");
                }
                let caller = self.macro_body("caller".into(), parameters, "endcall")?;
                Ok(StatementKind::Call { call, caller })
            }
            "filter" => {
                let filters = self.filter_chain()?;
                self.tag_end()?;
                Ok(StatementKind::Filter { filters, body: self.body("endfilter")? })
            }
            "with" => {
                let mut values = Vec::new();
                while *self.peek() != Token::TagEnd {
                    if !values.is_empty() {
                        self.expect_op(",")?;
                    }
                    let target = self.target(false)?;
                    self.expect_op("=")?;
                    values.push((target, self.expression(true)?));
                }
                self.tag_end()?;
                Ok(StatementKind::With { values, body: self.body("endwith")? })
            }
            "generation" => {
                self.tag_end()?;
                self.body("endgeneration").map(StatementKind::Scope)
            }
            "break" | "continue" if self.loops == 0 => self.error(format!("`{tag}` outside of a loop")),
            "break" => self.tag_end().map(|()| StatementKind::Break),
            "continue" => self.tag_end().map(|()| StatementKind::Continue),
            "include" | "import" | "from" | "extends" => {
                self.error(format!("`{tag}` needs other templates, and a chat template has none"))
            }
            _ => self.error(format!("unknown tag `{tag}`")),
        }
    }

    fn if_tag(&mut self) -> Result<StatementKind, TemplateError> {
        let mut branches = Vec::new();
        loop {
            let condition = self.tuple(false)?;
            self.tag_end()?;
            let (body, end) = self.statements(&["elif", "else", "endif"])?;
            branches.push((condition, body));
            let otherwise = match end.as_str() {
                "elif" => continue,
                "else" => {
                    self.tag_end()?;
                    self.body("endif")?
                }
                _ => {
                    self.tag_end()?;
                    Vec::new()
                }
            };
            return Ok(StatementKind::If { branches, otherwise });
        }
    }

    fn for_tag(&mut self) -> Result<StatementKind, TemplateError> {
        let target = self.target(false)?;
        if !self.skip_word("in") {
            return self.unexpected("`in`");
        }
        let items = self.tuple(false)?;
        let condition = if self.skip_word("if") { Some(self.expression(true)?) } else { None };
        let recursive = self.skip_word("recursive");
        self.tag_end()?;
        self.loops += 1;
        let (body, end) = self.statements(&["else", "endfor"])?;
        self.loops -= 1;
        self.tag_end()?;
        let otherwise = if end == "else" { self.body("endfor")? } else { Vec::new() };
        Ok(StatementKind::For(Box::new(For { target, items, condition, recursive, body, otherwise })))
    }

    fn set_tag(&mut self) -> Result<StatementKind, TemplateError> {
        let target = self.target(true)?;
        if self.skip_op("=") {
            let value = self.tuple(true)?;
            self.tag_end()?;
            return Ok(StatementKind::Set { target, value });
        }
        let filters = if self.skip_op("|") { self.filter_chain()? } else { Vec::new() };
        self.tag_end()?;
        Ok(StatementKind::SetBlock { target, filters, body: self.body("endset")? })
    }

    /// `name(args) | name ...`.
    fn filter_chain(&mut self) -> Result<Vec<Step>, TemplateError> {
        let mut filters = vec![self.filter()?];
        while self.skip_op("|") {
            filters.push(self.filter()?);
        }
        Ok(filters)
    }

    fn macro_tag(&mut self, name: Arc<str>, end: &str) -> Result<Macro, TemplateError> {
        let parameters = self.parameters()?;
        self.macro_body(name, parameters, end)
    }

    fn macro_body(
        &mut self,
        name: Arc<str>,
        parameters: Vec<Parameter>,
        end: &str,
    ) -> Result<Macro, TemplateError> {
        self.tag_end()?;
        let outer_words = std::mem::take(&mut self.words);
        let outer_loops = std::mem::take(&mut self.loops);
        let body = self.body(end)?;
        self.loops = outer_loops;
        let words = std::mem::replace(&mut self.words, outer_words);
        let takes = |word| words.contains(&word);
        let (takes_varargs, takes_kwargs, takes_caller) =
            (takes("varargs"), takes("kwargs"), takes("caller"));
        Ok(Macro { name, parameters, body, takes_varargs, takes_kwargs, takes_caller })
    }

    fn parameters(&mut self) -> Result<Vec<Parameter>, TemplateError> {
        let mut parameters: Vec<Parameter> = Vec::new();
        self.expect_op("(")?;
        while !self.is_op(")") {
            if !parameters.is_empty() {
                self.expect_op(",")?;
            }
            let name = self.name()?;
            let default = if self.skip_op("=") { Some(self.expression(true)?) } else { None };
            if default.is_none() && parameters.last().is_some_and(|(_, last)| last.is_some()) {
                return self.error("a parameter without a default follows one that has one");
            }
            parameters.push((name, default));
        }
        self.expect_op(")")?;
        Ok(parameters)
    }

    /// A name, `ns.name`, or several names with commas between.
    fn target(&mut self, with_attribute: bool) -> Result<Target, TemplateError> {
        let mut targets = Vec::new();
        let mut is_tuple = false;
        loop {
            targets.push(if self.skip_op("(") {
                let inner = self.nested(|parser| parser.target(with_attribute))?;
                self.expect_op(")")?;
                inner
            } else {
                let name = self.name()?;
                if with_attribute && self.skip_op(".") {
                    Target::Attribute(name, self.name()?)
                } else if ["true", "false", "none", "True", "False", "None"].contains(&&*name) {
                    return self.error(format!("cannot assign to `{name}`"));
                } else {
                    Target::Name(name)
                }
            });
            if !self.skip_op(",") {
                break;
            }
            is_tuple = true;
            if self.is_word("in") || self.is_op("=") || self.is_op(")") {
                break;
            }
        }
        match (is_tuple, targets.len()) {
            (false, 1) => Ok(targets.remove(0)),
            _ => Ok(Target::Tuple(targets)),
        }
    }
}
