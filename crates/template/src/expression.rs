//! Tokens to expressions, one function for each level of precedence, the loosest first.

use super::ast::{Arguments, Comparison, Expression, Operator, Step};
use super::error::TemplateError;
use super::lexer::Token;
use super::parser::Parser;

type Parsed<T> = Result<T, TemplateError>;

impl Parser {
    /// One expression, or several with commas between, which are a tuple. `conditional`: whether `a if b` may stand
    /// here without brackets.
    pub(super) fn tuple(&mut self, conditional: bool) -> Parsed<Expression> {
        let first = self.expression(conditional)?;
        if !self.is_op(",") {
            return Ok(first);
        }
        let mut items = vec![first];
        while self.skip_op(",") {
            let ends = matches!(self.peek(), Token::PrintEnd | Token::TagEnd | Token::Op(")"));
            if ends || self.is_word("recursive") {
                break;
            }
            items.push(self.expression(conditional)?);
        }
        Ok(Expression::Tuple(items))
    }

    pub(super) fn expression(&mut self, conditional: bool) -> Parsed<Expression> {
        self.nested(|parser| if conditional { parser.conditional() } else { parser.or() })
    }

    fn conditional(&mut self) -> Parsed<Expression> {
        let mut value = self.or()?;
        let mut repeats = 0;
        while self.skip_word("if") {
            let condition = Box::new(self.or()?);
            let otherwise = match self.skip_word("else") {
                true => Some(Box::new(self.expression(true)?)),
                false => None,
            };
            value = Expression::Conditional { condition, then: Box::new(value), otherwise };
            // Each one nests those before it.
            repeats += 1;
            if repeats > 16 {
                return self.error("too many `if` in one expression");
            }
        }
        Ok(value)
    }

    fn or(&mut self) -> Parsed<Expression> {
        let first = self.and()?;
        if !self.is_word("or") {
            return Ok(first);
        }
        let mut operands = vec![first];
        while self.skip_word("or") {
            operands.push(self.and()?);
        }
        Ok(Expression::Or(operands))
    }

    fn and(&mut self) -> Parsed<Expression> {
        let first = self.not()?;
        if !self.is_word("and") {
            return Ok(first);
        }
        let mut operands = vec![first];
        while self.skip_word("and") {
            operands.push(self.not()?);
        }
        Ok(Expression::And(operands))
    }

    fn not(&mut self) -> Parsed<Expression> {
        if !self.skip_word("not") {
            return self.compare();
        }
        self.nested(|parser| parser.not()).map(|operand| Expression::Not(Box::new(operand)))
    }

    fn compare(&mut self) -> Parsed<Expression> {
        let first = self.sum()?;
        let mut rest = Vec::new();
        loop {
            let comparison = match self.peek() {
                Token::Op("==") => Comparison::Equal,
                Token::Op("!=") => Comparison::NotEqual,
                Token::Op("<") => Comparison::Less,
                Token::Op("<=") => Comparison::LessOrEqual,
                Token::Op(">") => Comparison::Greater,
                Token::Op(">=") => Comparison::GreaterOrEqual,
                Token::Name(word) if word == "in" => Comparison::In,
                Token::Name(word)
                    if word == "not"
                        && matches!(self.peek_second(), Token::Name(second) if second == "in") =>
                {
                    self.next();
                    Comparison::NotIn
                }
                _ => break,
            };
            self.next();
            rest.push((comparison, self.sum()?));
        }
        if rest.is_empty() { Ok(first) } else { Ok(Expression::Compare(Box::new(first), rest)) }
    }

    fn sum(&mut self) -> Parsed<Expression> {
        self.arithmetic(&[("+", Operator::Add), ("-", Operator::Subtract)], Parser::concatenation)
    }

    fn concatenation(&mut self) -> Parsed<Expression> {
        let first = self.product()?;
        if !self.is_op("~") {
            return Ok(first);
        }
        let mut operands = vec![first];
        while self.skip_op("~") {
            operands.push(self.product()?);
        }
        Ok(Expression::Concatenate(operands))
    }

    fn product(&mut self) -> Parsed<Expression> {
        let operators = [
            ("*", Operator::Multiply),
            ("/", Operator::Divide),
            ("//", Operator::FloorDivide),
            ("%", Operator::Remainder),
        ];
        self.arithmetic(&operators, Parser::power)
    }

    fn power(&mut self) -> Parsed<Expression> {
        self.arithmetic(&[("**", Operator::Power)], |parser| parser.unary(true))
    }

    /// Operators of one precedence; all of them bind to the left, in jinja2 also `**`.
    fn arithmetic(
        &mut self,
        operators: &[(&str, Operator)],
        operand: impl Fn(&mut Parser) -> Parsed<Expression>,
    ) -> Parsed<Expression> {
        let first = operand(self)?;
        let mut rest = Vec::new();
        while let Some(&(text, operator)) = operators.iter().find(|(text, _)| self.is_op(text)) {
            self.expect_op(text)?;
            rest.push((operator, operand(self)?));
        }
        if rest.is_empty() { Ok(first) } else { Ok(Expression::Arithmetic(Box::new(first), rest)) }
    }

    fn unary(&mut self, with_filter: bool) -> Parsed<Expression> {
        let operand = if self.skip_op("-") {
            Expression::Negative(Box::new(self.nested(|parser| parser.unary(false))?))
        } else if self.skip_op("+") {
            Expression::Positive(Box::new(self.nested(|parser| parser.unary(false))?))
        } else {
            self.primary()?
        };
        let mut steps = Vec::new();
        self.postfix(&mut steps)?;
        if with_filter {
            self.filters_and_tests(&mut steps)?;
        }
        if steps.is_empty() { Ok(operand) } else { Ok(Expression::Chain(Box::new(operand), steps)) }
    }

    fn filters_and_tests(&mut self, steps: &mut Vec<Step>) -> Parsed<()> {
        loop {
            if self.skip_op("|") {
                steps.push(self.filter()?);
            } else if self.skip_word("is") {
                steps.push(self.test()?);
            } else if self.is_op("(") {
                steps.push(Step::Call(self.arguments()?));
            } else {
                return Ok(());
            }
        }
    }

    fn primary(&mut self) -> Parsed<Expression> {
        let expression = match self.peek().clone() {
            Token::Name(name) => match name.as_str() {
                "true" | "True" => Expression::Bool(true),
                "false" | "False" => Expression::Bool(false),
                "none" | "None" => Expression::None,
                _ => {
                    self.note_word(&name);
                    Expression::Name(name.into())
                }
            },
            Token::Str(mut text) => {
                while let Token::Str(more) = self.peek_second() {
                    text += more;
                    self.next();
                }
                Expression::Str(text.into())
            }
            Token::Int(value) => Expression::Int(value),
            Token::Float(value) => Expression::Float(value),
            Token::Op("(") => {
                self.next();
                let inner = if self.is_op(")") { Expression::Tuple(Vec::new()) } else { self.tuple(true)? };
                self.expect_op(")")?;
                return Ok(inner);
            }
            Token::Op("[") => {
                self.next();
                let items = self.list("]", |parser| parser.expression(true))?;
                return Ok(Expression::List(items));
            }
            Token::Op("{") => {
                self.next();
                let entries = self.list("}", |parser| {
                    let key = parser.expression(true)?;
                    parser.expect_op(":")?;
                    Ok((key, parser.expression(true)?))
                })?;
                return Ok(Expression::Dict(entries));
            }
            _ => return self.unexpected("an expression"),
        };
        self.next();
        Ok(expression)
    }

    /// Items with commas between, up to a bracket; a comma may stand at the end.
    fn list<T>(&mut self, end: &str, item: impl Fn(&mut Parser) -> Parsed<T>) -> Parsed<Vec<T>> {
        let mut items = Vec::new();
        while !self.is_op(end) {
            if !items.is_empty() {
                self.expect_op(",")?;
                if self.is_op(end) {
                    break;
                }
            }
            items.push(item(self)?);
        }
        self.expect_op(end)?;
        Ok(items)
    }

    fn postfix(&mut self, steps: &mut Vec<Step>) -> Parsed<()> {
        loop {
            if self.skip_op(".") {
                steps.push(match self.peek().clone() {
                    Token::Int(index) => {
                        self.next();
                        Step::Item(Expression::Int(index))
                    }
                    _ => Step::Attribute(self.name()?),
                });
            } else if self.skip_op("[") {
                steps.push(self.subscript()?);
            } else if self.is_op("(") {
                steps.push(Step::Call(self.arguments()?));
            } else {
                return Ok(());
            }
        }
    }

    /// What stands in square brackets behind a value.
    fn subscript(&mut self) -> Parsed<Step> {
        let first = if self.is_op(":") { None } else { Some(self.expression(true)?) };
        if let Some(first) = first.clone() {
            if self.skip_op("]") {
                return Ok(Step::Item(first));
            }
            if self.skip_op(",") {
                let mut items = vec![first];
                items.extend(self.list("]", |parser| parser.expression(true))?);
                return Ok(Step::Item(Expression::Tuple(items)));
            }
        }
        self.expect_op(":")?;
        let mut parts = [first, None, None];
        for part in &mut parts[1..] {
            if !self.is_op(":") && !self.is_op("]") {
                *part = Some(self.expression(true)?);
            }
            if !self.skip_op(":") {
                break;
            }
        }
        self.expect_op("]")?;
        Ok(Step::Slice(Box::new(parts)))
    }

    /// A filter behind its `|`.
    pub(super) fn filter(&mut self) -> Parsed<Step> {
        let name = self.dotted_name()?;
        let arguments = if self.is_op("(") { self.arguments()? } else { Arguments::default() };
        Ok(Step::Filter(name.into(), arguments))
    }

    /// A test behind its `is`.
    fn test(&mut self) -> Parsed<Step> {
        let negated = self.skip_word("not");
        let name = self.dotted_name()?;
        let takes_value = match self.peek() {
            Token::Name(word) if word == "is" => return self.error("a test cannot follow a test"),
            Token::Name(word) => !["else", "or", "and", "if", "in", "not"].contains(&word.as_str()),
            Token::Str(_) | Token::Int(_) | Token::Float(_) | Token::Op("[" | "{") => true,
            _ => false,
        };
        let arguments = if self.is_op("(") {
            self.arguments()?
        } else if takes_value {
            let value = self.primary()?;
            let mut steps = Vec::new();
            self.postfix(&mut steps)?;
            let value = if steps.is_empty() { value } else { Expression::Chain(Box::new(value), steps) };
            Arguments { positional: vec![value], ..Arguments::default() }
        } else {
            Arguments::default()
        };
        Ok(Step::Test { name: name.into(), arguments, negated })
    }

    fn dotted_name(&mut self) -> Parsed<String> {
        let mut name = self.name()?.to_string();
        while self.skip_op(".") {
            name = format!("{name}.{}", self.name()?);
        }
        Ok(name)
    }

    fn arguments(&mut self) -> Parsed<Arguments> {
        let mut arguments = Arguments::default();
        self.expect_op("(")?;
        let mut first = true;
        while !self.is_op(")") {
            if !first {
                self.expect_op(",")?;
                if self.is_op(")") {
                    break;
                }
            }
            first = false;
            if self.skip_op("*") {
                arguments.list = Some(self.expression(true)?);
            } else if self.skip_op("**") {
                arguments.dict = Some(self.expression(true)?);
            } else if matches!(self.peek(), Token::Name(_)) && matches!(self.peek_second(), Token::Op("=")) {
                let name = self.name()?;
                self.expect_op("=")?;
                arguments.named.push((name, self.expression(true)?));
            } else if !arguments.named.is_empty() || arguments.dict.is_some() {
                return self.error("a plain argument follows a named one");
            } else {
                arguments.positional.push(self.expression(true)?);
            }
        }
        self.expect_op(")")?;
        Ok(arguments)
    }
}
