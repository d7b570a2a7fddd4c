//! A template as a tree. Chains (`a + b + c`, `x.y | f | g`) are lists, so that depth is only what was nested.

use std::sync::Arc;

/// One statement and the line it stands on.
#[derive(Clone, Debug)]
pub(super) struct Statement {
    pub(super) line: usize,
    pub(super) kind: StatementKind,
}

#[derive(Clone, Debug)]
pub(super) enum StatementKind {
    Text(Arc<str>),
    Print(Expression),
    If {
        branches: Vec<(Expression, Vec<Statement>)>,
        otherwise: Vec<Statement>,
    },
    For(Box<For>),
    Set {
        target: Target,
        value: Expression,
    },
    /// `{% set x %}...{% endset %}`.
    SetBlock {
        target: Target,
        filters: Vec<Step>,
        body: Vec<Statement>,
    },
    Macro(Macro),
    /// `{% call f() %}...{% endcall %}`.
    Call {
        call: Expression,
        caller: Macro,
    },
    Filter {
        filters: Vec<Step>,
        body: Vec<Statement>,
    },
    With {
        values: Vec<(Target, Expression)>,
        body: Vec<Statement>,
    },
    /// `{% generation %}`: what it sets stays inside.
    Scope(Vec<Statement>),
    Break,
    Continue,
}

#[derive(Clone, Debug)]
pub(super) struct For {
    pub(super) target: Target,
    pub(super) items: Expression,
    pub(super) condition: Option<Expression>,
    pub(super) recursive: bool,
    pub(super) body: Vec<Statement>,
    pub(super) otherwise: Vec<Statement>,
}

/// A macro's parameter and what it is when not given.
pub(super) type Parameter = (Arc<str>, Option<Expression>);

#[derive(Clone, Debug)]
pub(super) struct Macro {
    pub(super) name: Arc<str>,
    pub(super) parameters: Vec<Parameter>,
    pub(super) body: Vec<Statement>,
    /// Whether its body speaks of `varargs`, `kwargs`, `caller`: without, they may not be given.
    pub(super) takes_varargs: bool,
    pub(super) takes_kwargs: bool,
    pub(super) takes_caller: bool,
}

/// Where a value is put.
#[derive(Clone, Debug)]
pub(super) enum Target {
    Name(Arc<str>),
    /// `ns.name`.
    Attribute(Arc<str>, Arc<str>),
    Tuple(Vec<Target>),
}

#[derive(Clone, Debug)]
pub(super) enum Expression {
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(Arc<str>),
    Name(Arc<str>),
    List(Vec<Expression>),
    Tuple(Vec<Expression>),
    Dict(Vec<(Expression, Expression)>),
    /// A value and what is done to it, from left to right.
    Chain(Box<Expression>, Vec<Step>),
    Negative(Box<Expression>),
    Positive(Box<Expression>),
    Not(Box<Expression>),
    /// Operators of one precedence, from left to right.
    Arithmetic(Box<Expression>, Vec<(Operator, Expression)>),
    /// `a ~ b ~ c`.
    Concatenate(Vec<Expression>),
    /// `a < b <= c`, which means `a < b and b <= c`.
    Compare(Box<Expression>, Vec<(Comparison, Expression)>),
    And(Vec<Expression>),
    Or(Vec<Expression>),
    Conditional {
        condition: Box<Expression>,
        then: Box<Expression>,
        otherwise: Option<Box<Expression>>,
    },
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    Attribute(Arc<str>),
    Item(Expression),
    Slice(Box<[Option<Expression>; 3]>),
    Call(Arguments),
    Filter(Arc<str>, Arguments),
    Test { name: Arc<str>, arguments: Arguments, negated: bool },
}

/// Arguments of a call, a filter or a test.
#[derive(Clone, Debug, Default)]
pub(super) struct Arguments {
    pub(super) positional: Vec<Expression>,
    pub(super) named: Vec<(Arc<str>, Expression)>,
    /// `*list`.
    pub(super) list: Option<Expression>,
    /// `**dict`.
    pub(super) dict: Option<Expression>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    FloorDivide,
    Remainder,
    Power,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
    NotIn,
}
