//! SentencePiece's `.model` files: a protobuf message with pieces, their scores, and how texts are made ready.

use super::charsmap::{Charsmap, Normalizer};
use super::protobuf::{Field, fields};
use super::sentences::{Algorithm, Sentences};
use super::specials::{Role, Specials};
use super::spelled::{Rules, Spelled};
use super::unigram::Unigram;
use super::vocabulary::{Kind, Vocabulary};
use super::{EndTokens, TokenizerError, TokenizerFormat};

const FORMAT: TokenizerFormat = TokenizerFormat::SentencePiece;

/// Numbers of fields that are read, by message.
mod number {
    pub(super) const PIECES: u64 = 1;
    pub(super) const TRAINER: u64 = 2;
    pub(super) const NORMALIZER: u64 = 3;
    pub(super) const PIECE_TEXT: u64 = 1;
    pub(super) const PIECE_SCORE: u64 = 2;
    pub(super) const PIECE_KIND: u64 = 3;
    pub(super) const TRAINER_MODEL: u64 = 3;
    pub(super) const TRAINER_SPACE_AS_SUFFIX: u64 = 24;
    pub(super) const TRAINER_BYTE_FALLBACK: u64 = 35;
    pub(super) const TRAINER_UNKNOWN: u64 = 40;
    pub(super) const TRAINER_BOS: u64 = 41;
    pub(super) const TRAINER_EOS: u64 = 42;
    pub(super) const TRAINER_UNKNOWN_TEXT: u64 = 44;
    pub(super) const NORMALIZER_CHARSMAP: u64 = 2;
    pub(super) const NORMALIZER_PREFIX: u64 = 3;
    pub(super) const NORMALIZER_EXTRA_SPACES: u64 = 4;
    pub(super) const NORMALIZER_ESCAPE: u64 = 5;
}

/// What the trainer noted, with what holds where it noted nothing.
struct Trainer {
    model: u64,
    byte_fallback: bool,
    space_as_suffix: bool,
    unknown: i32,
    bos: i32,
    eos: i32,
    unknown_text: String,
}

pub(super) fn read(bytes: &[u8]) -> Result<Spelled, TokenizerError> {
    let mut tokens = Vec::new();
    let mut scores = Vec::new();
    let mut trainer = Trainer {
        model: 1,
        byte_fallback: false,
        space_as_suffix: false,
        unknown: 0,
        bos: 1,
        eos: 2,
        unknown_text: " \u{2047} ".to_owned(),
    };
    let mut normalizer = Normalizer {
        add_prefix: true,
        remove_extra_spaces: true,
        escape_spaces: true,
        ..Normalizer::default()
    };
    for (field, value) in message(bytes)? {
        match (field, value) {
            (number::PIECES, Field::Bytes(bytes)) => {
                let (token, score, kind) = read_piece(bytes)?;
                tokens.push((token, kind));
                scores.push(score);
            }
            (number::TRAINER, Field::Bytes(bytes)) => read_trainer(bytes, &mut trainer)?,
            (number::NORMALIZER, Field::Bytes(bytes)) => read_normalizer(bytes, &mut normalizer)?,
            _ => {}
        }
    }
    if tokens.is_empty() {
        return Err(TokenizerError::malformed(FORMAT, "there are no pieces in it"));
    }
    normalizer.space_as_suffix = trainer.space_as_suffix;
    let vocabulary = Vocabulary::new(tokens)?;
    let algorithm = match trainer.model {
        1 => Algorithm::Unigram(Unigram::new(&vocabulary, &scores)),
        2 => Algorithm::Bpe,
        other => return Err(TokenizerError::unsupported(FORMAT, format_args!("models of type {other}"))),
    };
    let id = |id: i32| u32::try_from(id).ok().filter(|id| (*id as usize) < vocabulary.len());
    let ends = EndTokens { bos: id(trainer.bos), eos: id(trainer.eos), ..EndTokens::default() };
    let unknown = id(trainer.unknown);
    let user_defined = vocabulary.iter().filter(|(_, _, kind)| *kind == Kind::UserDefined);
    let user_defined = Specials::new(FORMAT, user_defined.map(|(id, token, _)| (token, id, Role::Text)))?;
    let rules = Rules::Sentences(Box::new(Sentences {
        normalizer,
        algorithm,
        scores,
        unknown,
        byte_fallback: trainer.byte_fallback,
        unknown_text: trainer.unknown_text,
        user_defined,
    }));
    let specials = Specials::new(FORMAT, std::iter::empty())?;
    Ok(Spelled { vocabulary, specials, rules, ends, added_first: Vec::new() })
}

fn message(bytes: &[u8]) -> Result<Vec<(u64, Field<'_>)>, TokenizerError> {
    let broken = |at| TokenizerError::malformed(FORMAT, format_args!("the message at byte {at} is broken"));
    fields(bytes).map(|field| field.map_err(broken)).collect()
}

fn read_piece(bytes: &[u8]) -> Result<(Box<[u8]>, f32, Kind), TokenizerError> {
    let (mut text, mut score, mut kind) = (&[][..], 0.0, 1);
    for (field, value) in message(bytes)? {
        match field {
            number::PIECE_TEXT => text = value.bytes().unwrap_or(text),
            number::PIECE_SCORE => score = value.float().unwrap_or(score),
            number::PIECE_KIND => kind = value.number().unwrap_or(kind),
            _ => {}
        }
    }
    Ok((text.into(), score, kind_of(kind as i64).unwrap_or(Kind::Normal)))
}

/// Kinds as SentencePiece and GGUF number them.
pub(super) fn kind_of(number: i64) -> Option<Kind> {
    Some(match number {
        1 => Kind::Normal,
        2 => Kind::Unknown,
        3 => Kind::Control,
        4 => Kind::UserDefined,
        5 => Kind::Unused,
        6 => Kind::Byte,
        _ => return None,
    })
}

fn read_trainer(bytes: &[u8], trainer: &mut Trainer) -> Result<(), TokenizerError> {
    for (field, value) in message(bytes)? {
        match field {
            number::TRAINER_MODEL => trainer.model = value.number().unwrap_or(trainer.model),
            number::TRAINER_BYTE_FALLBACK => trainer.byte_fallback = value.flag().unwrap_or(false),
            number::TRAINER_SPACE_AS_SUFFIX => trainer.space_as_suffix = value.flag().unwrap_or(false),
            number::TRAINER_UNKNOWN => trainer.unknown = value.int32().unwrap_or(trainer.unknown),
            number::TRAINER_BOS => trainer.bos = value.int32().unwrap_or(trainer.bos),
            number::TRAINER_EOS => trainer.eos = value.int32().unwrap_or(trainer.eos),
            number::TRAINER_UNKNOWN_TEXT => {
                trainer.unknown_text =
                    String::from_utf8_lossy(value.bytes().unwrap_or_default()).into_owned();
            }
            _ => {}
        }
    }
    Ok(())
}

fn read_normalizer(bytes: &[u8], normalizer: &mut Normalizer) -> Result<(), TokenizerError> {
    for (field, value) in message(bytes)? {
        match field {
            number::NORMALIZER_CHARSMAP => {
                let table = value.bytes().filter(|table| !table.is_empty());
                normalizer.charsmap = table.map(|table| Charsmap::read(FORMAT, table)).transpose()?;
            }
            number::NORMALIZER_PREFIX => normalizer.add_prefix = value.flag().unwrap_or(true),
            number::NORMALIZER_EXTRA_SPACES => normalizer.remove_extra_spaces = value.flag().unwrap_or(true),
            number::NORMALIZER_ESCAPE => normalizer.escape_spaces = value.flag().unwrap_or(true),
            _ => {}
        }
    }
    Ok(())
}
