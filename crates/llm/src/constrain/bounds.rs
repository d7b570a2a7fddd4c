//! Integers that 64-bit floats round: beyond 2^53 the grammar engine, which keeps numbers as floats, would move bounds to
//! their neighbours and say a neighbour of what it should. Bounds go inwards to the next integer that a float holds, so
//! that whatever is said lies within them; what leaves nothing to say is an error.

use serde_json::{Map, Number, Value};

/// Up to here floats hold every integer.
const EXACT: i128 = 1 << 53;
/// The largest that the engine can write, with either sign.
const MOST: i128 = i64::MAX as i128;
/// From here on the engine needs both bounds: a number of one more digit does not fit 64 bits.
const NEEDS_BOTH: i128 = 1_000_000_000_000_000_000;
const BOUNDS: [&str; 4] = ["minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"];

/// Makes the bounds of one schema such as floats hold; parts inside it are not looked at. An error says what cannot be.
pub(super) fn make_exact(schema: &mut Map<String, Value>) -> Result<(), String> {
    for values in ["const", "enum"].into_iter().filter_map(|name| schema.get(name)) {
        check_exact(values)?;
    }
    let bound = |name: &str| schema.get(name).and_then(Value::as_number).and_then(integer);
    if !BOUNDS.into_iter().filter_map(bound).any(|bound| bound.abs() > EXACT) {
        return Ok(());
    }
    let low = tighter(bound(BOUNDS[0]), bound(BOUNDS[1]).map(|bound| bound + 1), i128::max);
    let high = tighter(bound(BOUNDS[2]), bound(BOUNDS[3]).map(|bound| bound - 1), i128::min);
    if BOUNDS.into_iter().any(|name| schema.contains_key(name) && bound(name).is_none()) {
        return Err("it has a bound beyond 2^53 beside one that is no integer".to_owned());
    }
    if low.is_some_and(|low| low > MOST) || high.is_some_and(|high| high < -MOST) {
        return Err("its bounds leave only integers of more than 64 bits".to_owned());
    }
    let low = low.map(|low| next_exact(low.max(-MOST)));
    let high = high.map(|high| -next_exact(-high.min(MOST)));
    let low = low.or(high.filter(|high| *high <= -NEEDS_BOTH).map(|_| next_exact(-MOST)));
    let high = high.or(low.filter(|low| *low >= NEEDS_BOTH).map(|_| -next_exact(-MOST)));
    if low.zip(high).is_some_and(|(low, high)| low > high) {
        return Err("no integer between its bounds is one that 64-bit floats hold".to_owned());
    }
    BOUNDS.iter().for_each(|name| drop(schema.remove(*name)));
    for (name, bound) in [(BOUNDS[0], low), (BOUNDS[2], high)] {
        if let Some(bound) = bound.and_then(|bound| i64::try_from(bound).ok()) {
            schema.insert(name.to_owned(), bound.into());
        }
    }
    Ok(())
}

/// Whether all numbers of some data are said as they are.
fn check_exact(data: &Value) -> Result<(), String> {
    match data {
        Value::Number(number) => match integer(number) {
            Some(integer) if next_exact(integer) != integer => {
                Err(format!("{integer} is beyond 2^53 and none of the integers that 64-bit floats hold"))
            }
            _ => Ok(()),
        },
        Value::Array(items) => items.iter().try_for_each(check_exact),
        Value::Object(fields) => fields.values().try_for_each(check_exact),
        _ => Ok(()),
    }
}

fn tighter(one: Option<i128>, other: Option<i128>, choose: fn(i128, i128) -> i128) -> Option<i128> {
    match (one, other) {
        (Some(one), Some(other)) => Some(choose(one, other)),
        (one, other) => one.or(other),
    }
}

/// The integer that a number of a schema is, if it is one.
fn integer(number: &Number) -> Option<i128> {
    let whole = number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from));
    let float = || number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < 1e36);
    whole.or_else(|| float().map(|float| float as i128))
}

/// The first integer from here on that a float holds.
fn next_exact(from: i128) -> i128 {
    // Floats have 53 bits; what an integer has below those must be zero.
    let bits = 128 - from.unsigned_abs().leading_zeros();
    let step = 1i128 << bits.saturating_sub(53);
    (from + step - 1).div_euclid(step) * step
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_next_integer_that_a_float_holds_is_found() {
        let cases = [(5, 5), (-5, -5), (EXACT, EXACT), (EXACT + 1, EXACT + 2), (-EXACT - 1, -EXACT)];
        for (from, next) in cases.into_iter().chain([(MOST, MOST + 1), (-MOST, 1023 - MOST)]) {
            assert_eq!(next_exact(from), next, "{from}");
            assert_eq!(next as f64 as i128, next, "{from}");
        }
    }

    #[test]
    fn small_bounds_stay_as_they_are_and_large_ones_go_inwards() {
        let exact = |schema: Value| {
            let mut schema = schema.as_object().unwrap().clone();
            make_exact(&mut schema).map(|()| Value::Object(schema))
        };
        let small = json!({"type": "integer", "minimum": -5, "exclusiveMaximum": 1e9});
        assert_eq!(exact(small.clone()), Ok(small));
        let near = json!({"minimum": EXACT as i64 + 1, "exclusiveMaximum": EXACT as i64 + 6});
        assert_eq!(exact(near), Ok(json!({"minimum": EXACT as i64 + 2, "maximum": EXACT as i64 + 4})));
        for refused in [
            json!({"minimum": EXACT as i64 + 1, "maximum": EXACT as i64 + 1}),
            json!({"minimum": 1e30}),
            json!({"minimum": 1i64 << 60, "maximum": 1i64 << 59}),
            json!({"const": {"a": [EXACT as i64 + 1]}}),
            json!({"minimum": 0.5, "maximum": 1i64 << 60}),
        ] {
            assert!(exact(refused.clone()).is_err(), "{refused}");
        }
    }
}
