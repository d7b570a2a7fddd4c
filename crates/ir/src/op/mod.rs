//! What an op *is*: the catalogue, the kinds of fields its entries are made of, and what derives from both.
//!
//! Encoding, decoding, printing, parsing, operand walks and the op table in the docs are loops over
//! [`OpSpec`] and [`FieldRef`]; none of them lists ops.

mod activation;
mod catalogue;
mod field;

pub use activation::Activation;
pub use catalogue::{Op, OpKind};
pub(crate) use catalogue::{apply_rule, expand_into};
pub use field::{
    DefaultValue, Field, FieldKind, FieldMut, FieldOf, FieldRef, FieldSpec, FloatArg, IndexArg, IntArg,
    OffsetArg, World,
};

/// One entry of the catalogue as data.
#[derive(Debug)]
pub struct OpSpec {
    /// The node kind's name in the payload schema, without `Node`; of an internal op, the name of its variant.
    pub name: &'static str,
    /// The name in the text form.
    pub text: &'static str,
    /// The member number in the payload's union; internal ops have none.
    pub tag: Option<u8>,
    /// One line of documentation.
    pub doc: &'static str,
    /// Operands and attributes in declaration order.
    pub fields: &'static [FieldSpec],
    /// What the op gives.
    pub result: ResultSpec,
}

/// What an op gives.
#[derive(Clone, Copy, Debug)]
pub struct ResultSpec {
    /// The field's name in the payload schema.
    pub name: &'static str,
    /// One tensor, one scalar, several tensors, or none.
    pub kind: ResultKind,
    /// Position among the table's fields; [`NO_SLOT`] where the wire has no such field.
    pub slot: u16,
}

/// The slot of a result that the wire does not store.
pub const NO_SLOT: u16 = 255;

/// What kind of results an op gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultKind {
    /// Exactly one tensor.
    Tensor,
    /// Exactly one integer.
    Scalar,
    /// Any number of tensors.
    Tensors,
    /// Whatever the nested blocks yield; on the wire they write outer slots instead.
    Yielded,
    /// Nothing.
    Nothing,
}

/// What an op does besides computing its results. Ops with an effect keep their order, are never merged and
/// never dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing: equal operands give equal results.
    Pure,
    /// Writes to the session's off-graph cache.
    Cache,
    /// Advances the session's random generator.
    Random,
}

impl OpSpec {
    /// Position of field `index` among the table's fields on the wire: results sit between operands.
    pub fn field_slot(&self, index: usize) -> u16 {
        let index = index as u16;
        if index < self.result.slot { index } else { index + 1 }
    }
}

/// How many entries of the catalogue the payload has.
const PAYLOAD_KINDS: usize = 136;

impl OpKind {
    /// Every op of the payload in the order of their tags.
    pub fn all() -> &'static [OpKind] {
        &OpKind::KINDS[..PAYLOAD_KINDS]
    }

    /// The ops that no file has: each stands for several of the others, and backends run it as one.
    pub fn internal() -> &'static [OpKind] {
        &OpKind::KINDS[PAYLOAD_KINDS..]
    }

    /// Whether no file has it.
    pub fn is_internal(self) -> bool {
        self.spec().tag.is_none()
    }

    /// The kind of that union member.
    pub fn from_tag(tag: u8) -> Option<OpKind> {
        OpKind::all().iter().copied().find(|kind| kind.spec().tag == Some(tag))
    }

    /// The kind of that name in the text form.
    pub fn from_text(text: &str) -> Option<OpKind> {
        OpKind::KINDS.iter().copied().find(|kind| kind.spec().text == text)
    }
}

impl<W: World> Op<W> {
    /// The catalogue entry of this op.
    pub fn spec(&self) -> &'static OpSpec {
        self.kind().spec()
    }

    /// Tensors that the op reads, in field order; nested bodies are not entered.
    pub fn for_each_tensor(&self, mut visit: impl FnMut(W::Tensor)) {
        self.for_each_field(|_, field| field.for_each_tensor(&mut visit));
    }

    /// Scalars (integer values, seeds) that the op reads, in field order.
    pub fn for_each_scalar(&self, mut visit: impl FnMut(W::Scalar)) {
        self.for_each_field(|_, field| field.for_each_scalar(&mut visit));
    }

    /// What the op does besides computing.
    pub fn effect(&self) -> Effect {
        match self {
            Op::UpdateAndAttend { .. } => Effect::Cache,
            Op::RandomBits { seed: None, .. } => Effect::Random,
            _ => Effect::Pure,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_the_numbers_from_1_to_136_and_internal_ops_have_none() {
        let tags: Vec<Option<u8>> = OpKind::all().iter().map(|kind| kind.spec().tag).collect();
        assert_eq!(tags, (1..=136).map(Some).collect::<Vec<_>>());
        assert!(OpKind::internal().iter().all(|kind| kind.is_internal()));
    }

    #[test]
    fn text_names_are_unique() {
        for kind in OpKind::KINDS {
            assert_eq!(OpKind::from_text(kind.spec().text), Some(*kind));
        }
    }

    #[test]
    fn results_do_not_collide_with_fields() {
        for kind in OpKind::all() {
            let spec = kind.spec();
            let wire_result =
                matches!(spec.result.kind, ResultKind::Tensor | ResultKind::Scalar | ResultKind::Tensors);
            assert_eq!(wire_result, spec.result.slot != NO_SLOT, "{}", spec.name);
            assert!(!wire_result || spec.result.slot as usize <= spec.fields.len(), "{}", spec.name);
        }
    }
}
