//! Periods and factors against those that `transformers` computes (`ROPE_INIT_FUNCTIONS`), for a head of 16 features and
//! the base 10,000.

use super::*;
use crate::Config;
use crate::architectures::family;
use serde_json::{Value, json};

/// The rope of a Llama with such parameters in a context of that many positions.
fn rope(parameters: &Value, context: usize) -> Rope {
    let mut parameters = parameters.clone();
    parameters["rope_theta"] = json!(10_000.0);
    let config = Config::new(json!({"rope_parameters": parameters, "max_position_embeddings": 128})).unwrap();
    Rope::new("rope", 16, &config.rope(1.0, 128).unwrap(), context).unwrap()
}

#[test]
fn scaled_periods_are_those_of_the_reference() {
    let yarn = |more: Value| {
        let mut yarn = json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096});
        yarn.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        yarn
    };
    let long = json!({"rope_type": "longrope", "original_max_position_embeddings": 64,
        "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7],
        "long_factor": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]});
    let rest = f32::INFINITY;
    let short = [1.0, 3.478506, 12.0, 41.10961, 140.0, 474.3416, 1600.0, 5375.872];
    let cases: [(Value, usize, f32, [f32; 8]); 6] = [
        (
            yarn(json!({})),
            128,
            1.138_629_4,
            [1.0, 3.162278, 10.0, 38.92034, 160.0, 722.8063, 4000.0, 12649.11],
        ),
        (
            yarn(json!({"truncate": false, "beta_fast": 16, "beta_slow": 2, "attention_factor": 1.5})),
            128,
            1.5,
            [1.0, 3.162278, 10.0, 31.62277, 147.8936, 1211.968, 4000.0, 12649.11],
        ),
        (
            yarn(json!({"mscale": 1.0, "mscale_all_dim": 0.5})),
            128,
            1.064_821_6,
            [1.0, 3.162278, 10.0, 38.92034, 160.0, 722.8063, 4000.0, 12649.11],
        ),
        (
            json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                "original_max_position_embeddings": 32}),
            128,
            1.0,
            [1.0, 10.43406, 80.0, 252.9822, 800.0, 2529.822, 8000.0, 25298.22],
        ),
        (long.clone(), 64, 1.080_123_4, short),
        (
            json!({"rope_type": "proportional", "partial_rotary_factor": 0.7, "factor": 2.0}),
            128,
            1.0,
            [2.0, 6.324555, 20.0, 63.24555, 200.0, rest, rest, rest],
        ),
    ];
    let check = |parameters: &Value, periods: &[f32], wanted: [f32; 8]| {
        for (got, want) in periods.iter().zip(wanted) {
            assert!(*got == want || (got / want - 1.0).abs() < 1e-5, "{parameters}: {periods:?}");
        }
    };
    for (parameters, context, factor, wanted) in cases {
        let rope = rope(&parameters, context);
        let Frequencies::Periods(_, periods) = &rope.frequencies else { panic!("{parameters} is plain") };
        assert!((rope.attention_factor - factor).abs() < 1e-6, "{parameters}: {}", rope.attention_factor);
        check(&parameters, periods, wanted);
    }
    // A context beyond the border has both, with one factor for scores.
    let both = rope(&long, 65);
    let Frequencies::ByLength(by_length) = &both.frequencies else { panic!("one list for all lengths") };
    assert!((both.attention_factor - 1.080_123_4).abs() < 1e-6 && by_length.border == 64);
    check(&long, &by_length.short, short);
    check(&long, &by_length.long, [1.0, 6.324555, 30.0, 126.4911, 500.0, 1897.366, 7000.0, 25298.22]);
}

#[test]
fn what_acts_beyond_the_context_is_plain_within() {
    let dynamic = rope(&json!({"rope_type": "dynamic", "factor": 4.0}), 128);
    assert_eq!(dynamic, rope(&json!({"rope_type": "default"}), 128));
    // Plain positions turn whole heads, whatever part a file names.
    assert_eq!(dynamic, rope(&json!({"partial_rotary_factor": 0.5}), 128));
}

#[test]
fn parameters_that_make_no_rope_are_named() {
    let refused = |parameters: Value| {
        let file = json!({"model_type": "llama", "rope_parameters": parameters});
        let config = Config::new(file).unwrap();
        family("llama").unwrap().read(&config).err().unwrap().to_string()
    };
    let cases = [
        (json!({"rope_type": "su"}), "rope of type `su` is not supported; default, linear"),
        (json!({"rope_type": 3}), "`rope_type` is 3"),
        (json!({"rope_type": "dynamic"}), "lack `factor`"),
        (json!({"rope_type": "longrope", "short_factor": [1.0]}), "lack the list `long_factor`"),
        (
            json!({"rope_type": "yarn", "factor": 4.0, "partial_rotary_factor": 0.5}),
            "`partial_rotary_factor` is 0.5",
        ),
        (
            json!({"rope_type": "proportional", "partial_rotary_factor": 1.5}),
            "`partial_rotary_factor` is 1.5",
        ),
        (json!({"full_attention": {"rope_type": "default"}}), "of `full_attention` alone"),
    ];
    for (parameters, message) in cases {
        let error = refused(parameters);
        assert!(error.contains(message), "{error} should say {message:?}");
    }
    let settings = |scaling| RopeSettings { theta: 10_000.0, scaling };
    let few = settings(RopeScaling::Divisors(vec![1.0; 4]));
    let error = Rope::new("rope", 16, &few, 8).unwrap_err().to_string();
    assert!(error.contains("4 divisors for the 8 pairs"), "{error}");
    let yarn = YarnScaling {
        factor: 2.0,
        beta_fast: 32.0,
        beta_slow: 1.0,
        truncate: true,
        original_context: 4096,
        attention_factor: 1.0,
    };
    // The logarithm of the base divides.
    let error = Rope::new("rope", 16, &RopeSettings { theta: 1.0, scaling: RopeScaling::Yarn(yarn) }, 8);
    assert!(error.is_err());
}
