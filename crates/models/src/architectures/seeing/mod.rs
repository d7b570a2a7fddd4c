//! Language models that see: a tower that makes rows of an image, and a text model that reads them where its tokens' rows would be.
//!
//! Their programs have the text model's `forward`, as it is without eyes, and two methods beside it: `vision_encoder` (pixels to
//! rows) and `text_decoder` (the rows of one image, behind what the session's cache holds, to logits of the last).

mod gemma3;
mod gemma4;
mod qwen;
mod qwen3;
mod siglip;

use pteron_ir::{Dim, Op, ValueId};

use super::decoder::{Decoder, Places, ROWS, Row};
use super::{Architecture, Facts, Gemma4};
use crate::model::{KvCache, ModelOptions, Position};
use crate::net::{Ahead, literal};
use crate::{Config, ConfigError, ModelError, Net};

pub use gemma3::Gemma3Eyes;
pub use gemma4::{Gemma4Eyes, SOFT_TOKENS};
pub use qwen::QwenEyes;
pub use qwen3::Qwen3Eyes;
pub use siglip::Siglip;

/// The method that looks at an image.
pub const LOOK: &str = "vision_encoder";
/// The method that reads what was seen.
pub const IMAGE_ROWS: &str = "text_decoder";

/// What wrappers around a Gemma 3 that sees are called.
pub(super) const GEMMA3: &[&str] = &["gemma3 with eyes", "Gemma3ForConditionalGeneration"];

/// What wrappers around a Gemma 4 that sees are called.
pub(super) const GEMMA4: &[&str] = &["gemma4 with eyes", "Gemma4ForConditionalGeneration"];

/// What Qwen2.5-VLs are called.
pub(super) const QWEN2_5_VL: &[&str] = &["qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration"];

/// What Qwen3-VLs are called.
pub(super) const QWEN3_VL: &[&str] = &["qwen3_vl", "Qwen3VLForConditionalGeneration"];

/// A language model that sees.
#[derive(Clone, Debug, PartialEq)]
pub struct Seeing {
    /// What reads and writes.
    pub text: Text,
    /// What sees.
    pub eyes: Eyes,
}

/// What reads and writes.
#[derive(Clone, Debug, PartialEq)]
pub enum Text {
    /// A row of the table.
    Row(Box<Decoder>),
    /// A Gemma 4.
    Gemma4(Box<Gemma4>),
}

impl Text {
    fn architecture(&self) -> &dyn Architecture {
        match self {
            Text::Row(decoder) => decoder.as_ref(),
            Text::Gemma4(gemma) => gemma.as_ref(),
        }
    }

    /// What follows from rows in place of tokens, and from those for its first layers (Qwen3-VL).
    fn over(&self, net: &mut Net, rows: ValueId, more: &[ValueId]) -> Result<ValueId, ModelError> {
        match self {
            Text::Row(decoder) => decoder.over(net, rows, more),
            Text::Gemma4(gemma) => gemma.over(net, rows),
        }
    }

    /// Features of a row.
    fn width(&self) -> usize {
        match self {
            Text::Row(decoder) => decoder.hidden_size,
            Text::Gemma4(gemma) => gemma.hidden_size,
        }
    }
}

/// What sees.
#[derive(Clone, Debug, PartialEq)]
pub enum Eyes {
    /// SigLIP, places averaged to a fixed number of rows, which see each other in the text model.
    Gemma3(Gemma3Eyes),
    /// Images as large as their form allows, places averaged to rows, which see each other on some layers of some models.
    Gemma4(Gemma4Eyes),
    /// Images near their own size, rows with positions along three axes.
    Qwen(QwenEyes),
    /// The same with learned places, and with rows of several layers for the first layers of the text model.
    Qwen3(Qwen3Eyes),
}

impl Seeing {
    /// A Gemma 3 as its `config.json` describes it.
    pub fn gemma3(config: &Config) -> Result<Seeing, ConfigError> {
        let mut text = text(config)?;
        // The model with eyes gives its scores as they are; only the one that reads bounds them.
        text.head.soft_cap = None;
        Ok(Seeing { text: Text::Row(Box::new(text)), eyes: Eyes::Gemma3(Gemma3Eyes::read(config)?) })
    }

    /// A Gemma 4 as its `config.json` describes it.
    pub fn gemma4(config: &Config) -> Result<Seeing, ConfigError> {
        let text = Gemma4::read(config)?;
        let eyes = Gemma4Eyes::read(config, &text)?;
        Ok(Seeing { text: Text::Gemma4(Box::new(text)), eyes: Eyes::Gemma4(eyes) })
    }

    /// A Qwen2.5-VL as its `config.json` describes it.
    pub fn qwen2_5_vl(config: &Config) -> Result<Seeing, ConfigError> {
        let text = named("qwen2")?.read(&qwen::one_axis(config)?)?;
        Ok(Seeing { text: Text::Row(Box::new(text)), eyes: Eyes::Qwen(QwenEyes::read(config)?) })
    }

    /// A Qwen3-VL as its `config.json` describes it.
    pub fn qwen3_vl(config: &Config) -> Result<Seeing, ConfigError> {
        let text = named("qwen3")?.read(&qwen::one_axis(config)?)?;
        let eyes = Qwen3Eyes::read(config)?;
        let (levels, layers) = (eyes.levels(), text.layers.len());
        if levels > layers {
            return Err(ConfigError(format!("the vision tower has rows for {levels} layers of {layers}")));
        }
        Ok(Seeing { text: Text::Row(Box::new(text)), eyes: Eyes::Qwen3(eyes) })
    }

    /// The one that a `config.json` describes.
    pub fn read(config: &Config) -> Result<Seeing, ConfigError> {
        match config.wrapper().map_or_else(|| config.family(), Ok)? {
            name if name.starts_with("qwen2_5_vl") => Seeing::qwen2_5_vl(config),
            name if name.starts_with("qwen3_vl") => Seeing::qwen3_vl(config),
            name if name.starts_with("gemma4") => Seeing::gemma4(config),
            _ => Seeing::gemma3(config),
        }
    }
}

fn named(family: &str) -> Result<&'static Row, ConfigError> {
    let row = ROWS.iter().find(|row| row.names.contains(&family));
    row.ok_or_else(|| ConfigError(format!("a text model of the family `{family}`")))
}

/// The text model inside a wrapper.
fn text(config: &Config) -> Result<Decoder, ConfigError> {
    named(config.family()?)?.read(config)
}

/// The configuration of a wrapper's tower.
fn tower(config: &Config) -> Result<Config, ConfigError> {
    let tower = config.get_anywhere("vision_config").cloned();
    Config::new(tower.ok_or_else(|| ConfigError("`vision_config` is missing".to_owned()))?)
}

impl Architecture for Seeing {
    fn facts(&self) -> Facts {
        self.text.architecture().facts()
    }

    fn build(&self, net: &mut Net) -> Result<ValueId, ModelError> {
        if matches!(self.eyes, Eyes::Qwen(_) | Eyes::Qwen3(_)) && !self.beside(net.options()).is_empty() {
            net.shift_positions();
        }
        self.text.architecture().build(net)
    }

    fn beside(&self, options: &ModelOptions) -> Vec<&'static str> {
        // What is seen goes to the session's cache, beside what is read.
        let fits = options.kv == KvCache::OffGraph
            && match &self.eyes {
                // Rows see each other.
                Eyes::Gemma3(eyes) => eyes.rows <= options.chunk,
                Eyes::Gemma4(eyes) => eyes.fits(options.chunk),
                // Rows see what came before them, in whatever parts they are read. Behind an image, positions are shifted, which
                // a program can be told that counts tokens from one position.
                Eyes::Qwen(_) | Eyes::Qwen3(_) => options.position == Position::Number,
            };
        if fits { vec![LOOK, IMAGE_ROWS] } else { Vec::new() }
    }

    fn build_part(&self, part: &str, net: &mut Net) -> Result<Vec<(String, ValueId)>, ModelError> {
        let width = self.text.width();
        match (part, &self.eyes) {
            (LOOK, Eyes::Gemma3(eyes)) => Ok(vec![("rows".to_owned(), eyes.look(net, width)?)]),
            (LOOK, Eyes::Gemma4(eyes)) => Ok(vec![("rows".to_owned(), eyes.look(net, width)?)]),
            (LOOK, Eyes::Qwen(eyes)) => Ok(vec![("rows".to_owned(), eyes.look(net, width)?)]),
            (LOOK, Eyes::Qwen3(eyes)) => Ok(vec![("rows".to_owned(), eyes.look(net, width)?)]),
            (_, Eyes::Qwen(eyes)) => {
                let length = net.symbol("T", net.options().chunk);
                let rows = net.image_rows(width, length.clone(), Ahead::Nowhere)?;
                net.turn_by_axes(length, eyes.axes());
                Ok(vec![("logits".to_owned(), self.text.over(net, rows, &[])?)])
            }
            (_, Eyes::Qwen3(eyes)) => {
                let length = net.symbol("T", net.options().chunk);
                let all = net.image_rows(width * (1 + eyes.levels()), length.clone(), Ahead::Nowhere)?;
                net.turn_by_axes(length, eyes.axes());
                let part = |net: &mut Net, number: usize| {
                    let (start, stop) = (literal(number * width), literal((number + 1) * width));
                    net.op(Op::Slice { x: all, axis: literal(2), start, stop, step: 1 })
                };
                let rows = part(net, 0)?;
                let more =
                    (1..=eyes.levels()).map(|level| part(net, level)).collect::<Result<Vec<_>, _>>()?;
                Ok(vec![("logits".to_owned(), self.text.over(net, rows, &more)?)])
            }
            (_, Eyes::Gemma3(eyes)) => {
                let rows = net.image_rows(width, Dim::known(eyes.rows as i64), Ahead::Everywhere)?;
                Ok(vec![("logits".to_owned(), self.text.over(net, rows, &[])?)])
            }
            (_, Eyes::Gemma4(eyes)) => {
                let length = net.symbol("T", net.options().chunk);
                let rows = net.image_rows(width, length, eyes.ahead())?;
                Ok(vec![("logits".to_owned(), self.text.over(net, rows, &[])?)])
            }
        }
    }

    fn places(&self) -> Places {
        self.text.architecture().places()
    }

    fn keeps_caches_in_graph(&self) -> bool {
        self.text.architecture().keeps_caches_in_graph()
    }

    fn spare(&self) -> Vec<String> {
        self.text.architecture().spare()
    }
}
