//! Which weight is packed how: one scheme for all, rules for modules by name, and what is done with weights that come
//! packed.

use std::fmt;
use std::str::FromStr;

use pteron_tensor::DType;
use pteron_tensor::quant::Mode;

use super::{Packing, PackingError};
use crate::Form;

/// How matrices are to be packed. By default none is, and what comes packed is taken as it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Quantization {
    /// The scheme of all matrices for which no rule says otherwise.
    pub scheme: Option<Packing>,
    /// Values that share a scale, where that is asked for; else the scheme's own, or what a packed weight has.
    pub group: Option<usize>,
    /// Rules for modules; the first that fits counts.
    pub rules: Vec<Rule>,
    /// How scales and zero points are chosen.
    pub method: Method,
    /// Whether to store only what every runtime of the format can multiply by: groups of 16 are then requantised.
    pub portable: bool,
}

/// How scales and zero points are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// By the range of each group.
    #[default]
    MinMax,
    /// By half-quadratic quantisation, which stores zero points.
    Hqq,
}

impl FromStr for Method {
    type Err = String;

    fn from_str(name: &str) -> Result<Method, String> {
        match name {
            "minmax" => Ok(Method::MinMax),
            "hqq" => Ok(Method::Hqq),
            _ => Err(format!("{name:?} is no method of quantisation; there are minmax and hqq")),
        }
    }
}

/// What is done with the modules that a pattern fits. Written `PATTERN=SCHEME`, `PATTERN=SCHEME/GROUP` or `PATTERN=none`.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// A glob over module names, such as `model.layers.*.mlp.*`.
    pub pattern: String,
    /// The scheme; without, weights stay as they come.
    pub scheme: Option<Packing>,
    /// Values that share a scale, where the rule says.
    pub group: Option<usize>,
}

impl FromStr for Rule {
    type Err = PackingError;

    fn from_str(text: &str) -> Result<Rule, PackingError> {
        let wrong = || PackingError::Rule(text.to_owned());
        let (pattern, scheme) = text.rsplit_once('=').ok_or_else(wrong)?;
        let (pattern, scheme) = (pattern.trim(), scheme.trim());
        if pattern.is_empty() {
            return Err(wrong());
        }
        let (scheme, group) = match scheme.split_once('/') {
            Some((scheme, group)) => (scheme, Some(group.parse().map_err(|_| wrong())?)),
            None => (scheme, None),
        };
        let scheme = match scheme {
            "none" if group.is_none() => None,
            name => Some(name.parse::<Packing>()?),
        };
        if let (Some(scheme), Some(group)) = (scheme, group) {
            scheme.with_group(group)?;
        }
        Ok(Rule { pattern: pattern.to_owned(), scheme, group })
    }
}

/// How one matrix is stored that is packed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Plan {
    pub(crate) packing: Packing,
    pub(crate) made: Made,
}

/// Where the parts of a packed matrix come from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Made {
    /// The source has them so.
    Held,
    /// The source has them in larger groups: its scales are said once for each smaller one.
    Regrouped(Packing),
    /// They are made here, from floats or from what packed codes stand for.
    Quantised(Form, Method),
}

impl Quantization {
    /// All matrices in one scheme, by the range of each group.
    pub fn of(scheme: Packing) -> Quantization {
        Quantization {
            scheme: Some(scheme),
            group: Some(scheme.scheme().group()).filter(|_| scheme.scheme().mode() == Mode::Affine),
            ..Quantization::default()
        }
    }

    /// How the weight of that name and row length is packed, with scales of that float type where they are made here;
    /// nothing where it stays floats.
    pub(crate) fn plan(
        &self,
        name: &str,
        form: Form,
        columns: usize,
        scales: DType,
    ) -> Result<Option<Plan>, PackingError> {
        let module = name.strip_suffix(".weight").unwrap_or(name);
        let rule = self.rules.iter().find(|rule| fast_glob::glob_match(&rule.pattern, module));
        let is_affine =
            |scheme: Option<Packing>| scheme.is_some_and(|scheme| scheme.scheme().mode() == Mode::Affine);
        let (scheme, group) = match rule {
            // The groups of all are those of a rule too, unless it has its own or none to choose.
            Some(rule) => (rule.scheme, rule.group.or(self.group.filter(|_| is_affine(rule.scheme)))),
            None => (self.scheme, self.group),
        };
        let made = |scheme: Packing, group: Option<usize>| -> Result<Packing, PackingError> {
            let scheme = match group {
                Some(group) => scheme.with_group(group)?,
                None => scheme,
            };
            let scheme = match self.method {
                Method::MinMax => scheme,
                Method::Hqq if scheme.scheme().mode() != Mode::Affine => {
                    return Err(PackingError::NoZeroPoints(scheme));
                }
                Method::Hqq => scheme.with_zero_points(true),
            };
            scheme.check(columns)?;
            Ok(scheme.with_scales(scales))
        };
        let quantised = |scheme: Packing, group: Option<usize>| -> Result<Plan, PackingError> {
            Ok(Plan { packing: made(scheme, group)?, made: Made::Quantised(form, self.method) })
        };
        let plan = match (form, scheme) {
            (Form::Floats, None) => return Ok(None),
            (Form::Packed(held), None) => regrouped(held, group)?,
            (Form::Packed(held), Some(scheme)) if is_same_code(held, scheme) => regrouped(held, group)?,
            (_, Some(scheme)) => quantised(scheme, group)?,
        };
        if self.portable && !plan.packing.is_portable() {
            // Two bits more than it has, because one scale must now serve what two did.
            let bits = (plan.packing.scheme().bits() + 2).min(8);
            let scheme = Packing::affine(bits, PORTABLE_GROUP, plan.packing.zero_points(), scales)?;
            return quantised(scheme, None).map(Some);
        }
        plan.packing.check(columns)?;
        Ok(Some(plan))
    }
}

impl fmt::Display for Quantization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |scheme: Option<Packing>, group: Option<usize>| {
            let name = scheme.map_or("none".to_owned(), |scheme| scheme.name());
            group.map_or(name.clone(), |group| format!("{name}/{group}"))
        };
        f.write_str(&name(self.scheme, self.group))?;
        for rule in &self.rules {
            write!(f, ", {}={}", rule.pattern, name(rule.scheme, rule.group))?;
        }
        if self.method == Method::Hqq {
            f.write_str(", hqq")?;
        }
        if self.portable { f.write_str(", portable") } else { Ok(()) }
    }
}

/// The smallest group that every runtime multiplies by.
const PORTABLE_GROUP: usize = 32;

fn is_same_code(held: Packing, scheme: Packing) -> bool {
    (held.scheme().mode(), held.scheme().bits()) == (scheme.scheme().mode(), scheme.scheme().bits())
}

/// A packed weight in groups of that size, where it can be had without loss.
fn regrouped(held: Packing, group: Option<usize>) -> Result<Plan, PackingError> {
    let held_group = held.scheme().group();
    match group {
        Some(wanted) if wanted != held_group && held.scheme().mode() == Mode::Affine => {
            if !held_group.is_multiple_of(wanted) {
                return Err(PackingError::Regroup { held, held_group, wanted });
            }
            Ok(Plan { packing: held.with_group(wanted)?, made: Made::Regrouped(held) })
        }
        _ => Ok(Plan { packing: held, made: Made::Held }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packing(name: &str) -> Packing {
        name.parse().unwrap()
    }

    fn plan(quantization: &Quantization, name: &str, form: Form) -> Result<Option<Plan>, PackingError> {
        quantization.plan(name, form, 256, DType::BF16)
    }

    fn kept(held: Packing) -> Option<Plan> {
        Some(Plan { packing: held, made: Made::Held })
    }

    #[test]
    fn the_first_rule_that_fits_counts() {
        let rules = ["*.mlp.*=4w/64", "*.mlp.up_proj=8w", "lm_head=none"];
        let quantization = Quantization {
            scheme: Some(packing("6w")),
            rules: rules.iter().map(|rule| rule.parse().unwrap()).collect(),
            ..Quantization::default()
        };
        let stored = |name: &str| plan(&quantization, name, Form::Floats).unwrap().map(|plan| plan.packing);
        let scheme = |bits, group| Packing::affine(bits, group, false, DType::BF16).ok();
        assert_eq!(stored("model.layers.3.mlp.up_proj.weight"), scheme(4, 64));
        assert_eq!(stored("model.layers.3.self_attn.q_proj.weight"), scheme(6, 32));
        assert_eq!(stored("lm_head.weight"), None);
    }

    #[test]
    fn rules_that_say_nothing_are_refused() {
        for text in ["", "=4w", "a=", "a", "a=7w", "a=4w/", "a=4w/17", "a=none/32", "a=nvfp4/64"] {
            assert!(text.parse::<Rule>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn schemes_without_a_choice_of_groups_refuse_another() {
        let of = |name, group| Quantization {
            scheme: Some(packing(name)),
            group,
            rules: vec!["lm_head=mxfp4".parse().unwrap()],
            ..Quantization::default()
        };
        assert!(plan(&of("nvfp4", Some(64)), "x.weight", Form::Floats).is_err());
        assert!(plan(&of("nvfp4", Some(16)), "x.weight", Form::Floats).is_ok());
        let head = plan(&of("4w", Some(64)), "lm_head.weight", Form::Floats).unwrap().unwrap();
        assert_eq!(head.packing.name(), "mxfp4");
    }

    #[test]
    fn packed_weights_stay_unless_asked_otherwise() {
        let held = Packing::affine(4, 64, true, DType::F16).unwrap();
        let form = Form::Packed(held);
        let name = "model.layers.0.mlp.up_proj.weight";
        assert_eq!(plan(&Quantization::default(), name, form), Ok(kept(held)));
        let same = Quantization { scheme: Some(packing("4w")), ..Quantization::default() };
        assert_eq!(plan(&same, name, form), Ok(kept(held)));
        let smaller = Quantization { group: Some(32), ..Quantization::default() };
        let packing_32 = held.with_group(32).unwrap();
        let regrouped = Plan { packing: packing_32, made: Made::Regrouped(held) };
        assert_eq!(plan(&smaller, name, form), Ok(Some(regrouped)));
        let larger = Quantization { group: Some(128), ..Quantization::default() };
        assert!(matches!(plan(&larger, name, form), Err(PackingError::Regroup { .. })));
        let fewer = Quantization { scheme: Some(packing("3w")), ..Quantization::default() };
        assert_eq!(plan(&fewer, name, form).unwrap().unwrap().made, Made::Quantised(form, Method::MinMax));
    }

    #[test]
    fn portable_programs_have_no_groups_of_16() {
        let held = Packing::affine(6, 16, false, DType::F32).unwrap();
        let portable = Quantization { portable: true, ..Quantization::default() };
        let stored = plan(&portable, "lm_head.weight", Form::Packed(held)).unwrap().map(|plan| plan.packing);
        assert_eq!(stored, Packing::affine(8, 32, false, DType::BF16).ok());
        let same = Packing::affine(4, 32, true, DType::F32).unwrap();
        assert_eq!(plan(&portable, "lm_head.weight", Form::Packed(same)), Ok(kept(same)));
    }

    #[test]
    fn hqq_needs_zero_points() {
        let hqq = |name| Quantization {
            scheme: Some(packing(name)),
            method: Method::Hqq,
            ..Quantization::default()
        };
        assert!(matches!(plan(&hqq("nvfp4"), "x.weight", Form::Floats), Err(PackingError::NoZeroPoints(_))));
        assert!(plan(&hqq("4w"), "x.weight", Form::Floats).unwrap().unwrap().packing.zero_points());
    }
}
