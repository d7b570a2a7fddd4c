//! Whether an output is what it should be: the rules of `conformance/README.md`, element by element, with
//! differences in f64.
//!
//! Two values flow in, a [`Verdict`] flows out: how much of the tolerance was used, and the worst element in
//! words if it was too much. Nothing here runs a program.

use super::case::Rule;
use half::{bf16, f16};
use pteron_runtime::Value;
use pteron_tensor::{DType, HostTensor, TensorError};

/// What came of comparing one output.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Verdict {
    /// The largest share of the tolerance that an element took; infinite where none was allowed.
    pub(crate) used: f64,
    /// What is wrong, if something is.
    pub(crate) problem: Option<String>,
}

/// How far apart numbers may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Tolerance {
    pub(crate) atol: f64,
    pub(crate) rtol: f64,
    /// A share of the output's largest magnitude that is allowed everywhere.
    pub(crate) share: f64,
}

impl Tolerance {
    /// Not at all.
    pub(crate) const NONE: Tolerance = Tolerance { atol: 0.0, rtol: 0.0, share: 0.0 };

    /// What a rule allows in a case with these tolerances.
    pub(crate) fn of(rule: Rule, atol: f64, rtol: f64) -> Tolerance {
        if rule == Rule::Close { Tolerance { atol, rtol, share: 0.0 } } else { Tolerance::NONE }
    }

    /// The same for outputs whose largest magnitude is this one.
    fn for_magnitude(self, largest: f64) -> Limit {
        Limit { tolerance: self, least: self.share * largest }
    }
}

/// A tolerance for the numbers of one output.
#[derive(Clone, Copy, Debug)]
struct Limit {
    tolerance: Tolerance,
    /// Allowed whatever the element is.
    least: f64,
}

impl Limit {
    /// What two numbers may differ by, the second being the right one.
    fn allowed(self, want: f64) -> f64 {
        (self.tolerance.atol + self.tolerance.rtol * want.abs()).max(self.least)
    }

    /// The share of the tolerance that a difference takes; beyond 1 is too much.
    fn used(self, got: f64, want: f64) -> f64 {
        if got == want || (got.is_nan() && want.is_nan()) {
            return 0.0;
        }
        if !got.is_finite() || !want.is_finite() {
            return f64::INFINITY;
        }
        let (difference, allowed) = ((got - want).abs(), self.allowed(want));
        let share = difference / allowed;
        // Rounding of the quotient must not decide: the README compares, it does not divide.
        if difference <= allowed { share.min(1.0) } else { share.max(1.0 + f64::EPSILON) }
    }
}

/// Whether `got` is of the kind, dtype and shape of `want`.
pub(crate) fn same_type(got: &Value, want: &Value) -> Result<(), String> {
    let kind = |value: &Value| match value {
        Value::Tensor(tensor) => format!("{} {:?}", tensor.dtype(), tensor.shape()),
        Value::Int(_) => "int".into(),
        Value::Float(_) => "float".into(),
        Value::Bool(_) => "bool".into(),
        other => other.describe(),
    };
    let (got, want) = (kind(got), kind(want));
    if got == want { Ok(()) } else { Err(format!("got {got}, want {want}")) }
}

/// Compares two values element by element.
pub(crate) fn compare(got: &Value, want: &Value, tolerance: Tolerance) -> Result<Verdict, String> {
    same_type(got, want)?;
    let (shape, got, want) = match (got, want) {
        (Value::Tensor(got), Value::Tensor(want)) => (got.shape(), Numbers::of(got)?, Numbers::of(want)?),
        (got, want) => (&[] as &[usize], Numbers::of_scalar(got)?, Numbers::of_scalar(want)?),
    };
    let limit = tolerance.for_magnitude(want.largest());
    let mut worst: Option<Worst> = None;
    let (mut most, mut wrong) = (0.0f64, 0);
    for index in 0..got.len() {
        let used = match (&got, &want) {
            (Numbers::Floats(got), Numbers::Floats(want)) => limit.used(got[index], want[index]),
            (Numbers::Wholes(got), Numbers::Wholes(want)) if got[index] == want[index] => 0.0,
            _ => f64::INFINITY,
        };
        most = most.max(used);
        if used > 1.0 {
            wrong += 1;
            if worst.as_ref().is_none_or(|worst| used > worst.used) {
                worst = Some(Worst { index, used });
            }
        }
    }
    let problem = worst.map(|worst| {
        let place = place(worst.index, shape);
        let text = format!("{place}got {}, want {}", got.show(worst.index), want.show(worst.index));
        let far = far(&got, &want, worst, limit);
        format!("{text}{far} ({wrong} of {} differ)", elements(got.len()))
    });
    Ok(Verdict { used: most, problem })
}

struct Worst {
    index: usize,
    used: f64,
}

fn elements(count: usize) -> String {
    if count == 1 { "1 element".into() } else { format!("{count} elements") }
}

/// `[1, 2]: ` for an element of a tensor, nothing for a scalar.
fn place(index: usize, shape: &[usize]) -> String {
    let mut rest = index;
    let mut position: Vec<usize> = shape
        .iter()
        .rev()
        .map(|&size| {
            let at = rest % size.max(1);
            rest /= size.max(1);
            at
        })
        .collect();
    position.reverse();
    if shape.is_empty() { String::new() } else { format!("{position:?}: ") }
}

/// How far over the tolerance an element is.
fn far(got: &Numbers, want: &Numbers, worst: Worst, limit: Limit) -> String {
    let (Numbers::Floats(got), Numbers::Floats(want)) = (got, want) else { return String::new() };
    let (got, want) = (got[worst.index], want[worst.index]);
    if !got.is_finite() || !want.is_finite() {
        return String::new();
    }
    let allowed = limit.allowed(want);
    let difference = (got - want).abs();
    match allowed == 0.0 {
        true => format!(", off by {difference:.3e} where nothing is allowed"),
        false => format!(", off by {difference:.3e}, {:.3} times the allowed {allowed:.3e}", worst.used),
    }
}

/// Whether every element is the index of a true entry in the last dim of `allowed`.
pub(crate) fn one_of(got: &Value, allowed: &HostTensor) -> Result<Verdict, String> {
    let Value::Tensor(got) = got else { return Err(format!("got {}, want a tensor", got.describe())) };
    let Some((&candidates, shape)) = allowed.shape().split_last() else {
        return Err("`allowed` has no dim of candidates".into());
    };
    if shape != got.shape() || allowed.dtype() != DType::Bool {
        return Err(format!(
            "`allowed` is {} {:?}, which does not go with an output of {:?}",
            allowed.dtype(),
            allowed.shape(),
            got.shape()
        ));
    }
    let Numbers::Wholes(picks) = Numbers::of(got)? else {
        return Err(format!("got {}, want indices", got.dtype()));
    };
    for (index, &pick) in picks.iter().enumerate() {
        let entry = usize::try_from(pick).ok().filter(|pick| *pick < candidates);
        if entry.is_none_or(|entry| allowed.bytes()[index * candidates + entry] == 0) {
            let row = &allowed.bytes()[index * candidates..][..candidates];
            let open = row.iter().filter(|&&flag| flag != 0).count();
            let problem = format!(
                "{}got {pick}, which is none of the {open} allowed of {candidates}",
                place(index, got.shape())
            );
            return Ok(Verdict { used: f64::INFINITY, problem: Some(problem) });
        }
    }
    Ok(Verdict { used: 0.0, problem: None })
}

/// The index of the largest number in the last row of some logits; the first of equals.
pub(crate) fn greedy(logits: &Value) -> Result<i64, String> {
    let Value::Tensor(tensor) = logits else { return Err(format!("logits are {}", logits.describe())) };
    let Numbers::Floats(numbers) = Numbers::of(tensor)? else {
        return Err(format!("logits are {}, not floats", tensor.dtype()));
    };
    let row = tensor.shape().last().copied().unwrap_or(0).min(numbers.len());
    let row = &numbers[numbers.len() - row..];
    if row.is_empty() || row.iter().any(|logit| logit.is_nan()) {
        return Err("the last row of the logits is empty or has a NaN".into());
    }
    let mut best = 0;
    for (index, logit) in row.iter().enumerate() {
        if *logit > row[best] {
            best = index;
        }
    }
    Ok(best as i64)
}

/// The elements of a tensor, wide enough for every dtype of their kind.
pub(super) enum Numbers {
    Floats(Vec<f64>),
    Wholes(Vec<i128>),
}

impl Numbers {
    pub(super) fn of(tensor: &HostTensor) -> Result<Numbers, String> {
        let numbers = match tensor.dtype() {
            DType::Bool => Ok(Numbers::Wholes(tensor.bytes().iter().map(|&byte| byte.into()).collect())),
            DType::U8 => wholes::<u8>(tensor),
            DType::U16 => wholes::<u16>(tensor),
            DType::U32 => wholes::<u32>(tensor),
            DType::U64 => wholes::<u64>(tensor),
            DType::I8 => wholes::<i8>(tensor),
            DType::I16 => wholes::<i16>(tensor),
            DType::I32 => wholes::<i32>(tensor),
            DType::I64 => wholes::<i64>(tensor),
            DType::F16 => floats::<f16>(tensor),
            DType::BF16 => floats::<bf16>(tensor),
            DType::F32 => floats::<f32>(tensor),
            DType::F64 => floats::<f64>(tensor),
        };
        numbers.map_err(|error| error.to_string())
    }

    fn of_scalar(value: &Value) -> Result<Numbers, String> {
        match value {
            Value::Int(value) => Ok(Numbers::Wholes(vec![(*value).into()])),
            Value::Bool(value) => Ok(Numbers::Wholes(vec![(*value).into()])),
            Value::Float(value) => Ok(Numbers::Floats(vec![*value])),
            other => Err(format!("{} cannot be judged", other.describe())),
        }
    }

    /// The largest magnitude of the finite floats.
    pub(super) fn largest(&self) -> f64 {
        match self {
            Numbers::Floats(numbers) => {
                let finite = numbers.iter().filter(|number| number.is_finite());
                finite.fold(0.0, |largest, number| largest.max(number.abs()))
            }
            Numbers::Wholes(_) => 0.0,
        }
    }

    fn len(&self) -> usize {
        match self {
            Numbers::Floats(numbers) => numbers.len(),
            Numbers::Wholes(numbers) => numbers.len(),
        }
    }

    fn show(&self, index: usize) -> String {
        match self {
            // The shortest text for what came from an f32 or less; 0.1 would read 0.10000000149011612.
            Numbers::Floats(numbers) if f64::from(numbers[index] as f32) == numbers[index] => {
                format!("{}", numbers[index] as f32)
            }
            Numbers::Floats(numbers) => format!("{}", numbers[index]),
            Numbers::Wholes(numbers) => format!("{}", numbers[index]),
        }
    }
}

fn wholes<T: pteron_tensor::Element + Into<i128>>(tensor: &HostTensor) -> Result<Numbers, TensorError> {
    Ok(Numbers::Wholes(tensor.as_slice::<T>()?.iter().map(|&number| number.into()).collect()))
}

fn floats<T: pteron_tensor::Element + Into<f64>>(tensor: &HostTensor) -> Result<Numbers, TensorError> {
    Ok(Numbers::Floats(tensor.as_slice::<T>()?.iter().map(|&number| number.into()).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAN: f32 = f32::NAN;
    const INF: f32 = f32::INFINITY;

    fn f32s(values: &[f32]) -> Value {
        Value::Tensor(HostTensor::from_slice(vec![values.len()], values).unwrap())
    }

    fn i64s(values: &[i64]) -> Value {
        Value::Tensor(HostTensor::from_slice(vec![values.len()], values).unwrap())
    }

    #[test]
    fn close_follows_the_readme() {
        let tolerance = Tolerance { atol: 0.5, rtol: 0.25, share: 0.0 };
        let cases: [(&[f32], &[f32], bool); 9] = [
            (&[1.0], &[1.0], true),
            (&[1.75], &[1.0], true), // 0.75 <= 0.5 + 0.25
            (&[1.7501], &[1.0], false),
            (&[-1.5], &[-2.5], true), // 1.0 <= 0.5 + 0.625
            (&[NAN], &[NAN], true),
            (&[NAN], &[0.0], false),
            (&[INF], &[INF], true),
            (&[INF], &[-INF], false),
            (&[3.4e38], &[INF], false),
        ];
        for (got, want, passes) in cases {
            let verdict = compare(&f32s(got), &f32s(want), tolerance).unwrap();
            assert_eq!(verdict.problem.is_none(), passes, "{got:?} for {want:?}: {verdict:?}");
        }
        assert_eq!(compare(&f32s(&[1.375]), &f32s(&[1.0]), tolerance).unwrap().used, 0.5);
    }

    #[test]
    fn integers_must_be_equal_whatever_the_tolerance() {
        let tolerance = Tolerance { atol: 10.0, rtol: 10.0, share: 0.0 };
        let (big, next) = (i64s(&[1 << 60]), i64s(&[(1 << 60) + 1]));
        assert!(compare(&big, &next, tolerance).unwrap().problem.is_some());
        assert!(compare(&big, &big, tolerance).unwrap().problem.is_none());
    }

    #[test]
    fn exact_tells_neighbours_apart_but_not_zeros() {
        let exact = |got: &[f32], want: &[f32]| compare(&f32s(got), &f32s(want), Tolerance::NONE).unwrap();
        assert_eq!(exact(&[0.0, NAN], &[-0.0, NAN]), Verdict { used: 0.0, problem: None });
        assert!(exact(&[1.0], &[1.0000001]).problem.is_some());
    }

    #[test]
    fn the_worst_element_is_shown_with_its_place() {
        let tensor = |values: &[f32]| HostTensor::from_slice(vec![2, 2], values).unwrap();
        let (got, want) = (tensor(&[1.0, 2.5, 3.0, 7.0]), tensor(&[1.0, 2.0, 3.0, 4.0]));
        let tolerance = Tolerance { atol: 0.25, rtol: 0.0, share: 0.0 };
        let verdict = compare(&got.into(), &want.into(), tolerance).unwrap();
        assert_eq!(verdict.used, 12.0);
        assert_eq!(
            verdict.problem.unwrap(),
            "[1, 1]: got 7, want 4, off by 3.000e0, 12.000 times the allowed 2.500e-1 (2 of 4 elements differ)"
        );
    }

    #[test]
    fn other_kinds_dtypes_and_shapes_are_problems() {
        let cases = [
            (f32s(&[1.0]), i64s(&[1]), "got f32 [1], want i64 [1]"),
            (f32s(&[1.0]), f32s(&[1.0, 2.0]), "got f32 [1], want f32 [2]"),
            (Value::Int(1), Value::Bool(true), "got int, want bool"),
            (Value::Int(1), i64s(&[1]), "got int, want i64 [1]"),
            (Value::None, Value::Int(1), "got nothing, want int"),
        ];
        for (got, want, message) in cases {
            assert_eq!(compare(&got, &want, Tolerance::NONE).unwrap_err(), message);
        }
    }

    #[test]
    fn picks_must_be_allowed() {
        let allowed = HostTensor::from_bools(vec![2, 3], &[true, false, false, false, true, true]).unwrap();
        assert_eq!(one_of(&i64s(&[0, 2]), &allowed).unwrap().problem, None);
        let refused = one_of(&i64s(&[0, 0]), &allowed).unwrap().problem.unwrap();
        assert_eq!(refused, "[1]: got 0, which is none of the 2 allowed of 3");
        for outside in [-1, 3, i64::MIN] {
            assert!(one_of(&i64s(&[outside, 1]), &allowed).unwrap().problem.is_some());
        }
        assert!(one_of(&i64s(&[0]), &allowed).is_err());
        assert!(one_of(&f32s(&[0.0, 1.0]), &allowed).is_err());
    }

    #[test]
    fn greedy_reads_the_last_row() {
        let logits = HostTensor::from_slice(vec![1, 2, 3], &[9f32, 0.0, 0.0, 1.0, 5.0, 5.0]).unwrap();
        assert_eq!(greedy(&logits.into()), Ok(1));
        assert!(greedy(&f32s(&[1.0, NAN])).is_err());
        assert!(greedy(&i64s(&[1])).is_err());
    }
}
