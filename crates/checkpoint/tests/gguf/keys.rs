//! Keys of a file's architecture: those that would be passed over in silence are errors or told, those that change nothing
//! pass; how tokens are to be chosen travels along.

use pteron_checkpoint::{Export, ExportOptions};
use pteron_companion::GENERATION_CONFIG;
use pteron_format::Limits;
use pteron_format::pte::Pte;
use pteron_gguf::{TensorType, Value, ValueType, Writer};
use pteron_tensor::Bytes;

use super::tiny::*;

fn with_keys(keys: &[(&str, Value<'static>)]) -> Writer {
    let mut writer = llama("F32", &[]);
    for (key, value) in keys {
        writer.put(key, *value).unwrap();
    }
    writer
}

#[test]
fn keys_that_change_the_model_and_are_not_honoured_are_errors() {
    let cases = [
        ("llama.attention.scale", Value::F32(0.5)),
        ("llama.logit_scale", Value::F32(0.25)),
        ("llama.residual_scale", Value::F32(0.25)),
        ("llama.embedding_scale", Value::F32(12.0)),
        ("llama.final_logit_softcapping", Value::F32(30.0)),
        ("llama.attn_logit_softcapping", Value::F32(50.0)),
        ("llama.attention.causal", Value::Bool(false)),
        ("llama.pooling_type", Value::U32(3)),
        ("llama.rope.scaling.attn_factor", Value::F32(1.2)),
        ("llama.attention.shared_kv_layers", Value::U32(1)),
        ("llama.ssm.state_size", Value::U32(16)),
        ("llama.hidden_activation", Value::String(b"gelu")),
        ("general.type", Value::String(b"adapter")),
    ];
    for (key, value) in cases {
        let error =
            open(&with_keys(&[(key, value)]).finish()).err().unwrap_or_else(|| panic!("{key} passes"));
        assert!(error.to_string().contains(key), "{error}");
    }
    let experts = [("llama.expert_count", Value::U32(8)), ("llama.expert_used_count", Value::U32(2))];
    let error = open(&with_keys(&experts[..1]).finish()).err().unwrap().to_string();
    assert!(error.contains("llama.expert_used_count"), "{error}");
    for (key, value) in [
        ("llama.expert_gating_func", Value::U32(2)),
        ("llama.expert_weights_scale", Value::F32(2.5)),
        ("llama.expert_group_count", Value::U32(4)),
        ("llama.leading_dense_block_count", Value::U32(1)),
    ] {
        let error = open(&with_keys(&[experts[0], experts[1], (key, value)]).finish()).err().unwrap();
        assert!(error.to_string().contains(key), "{error}");
        assert!(open(&with_keys(&[(key, value)]).finish()).is_ok(), "{key} means nothing without experts");
    }
    let mut labels = with_keys(&[]);
    let texts = [Value::String(b"yes"), Value::String(b"no")];
    labels.put_array("llama.classifier.output_labels", ValueType::String, &texts).unwrap();
    let error = open(&labels.finish()).err().unwrap().to_string();
    assert!(error.contains("classifier.output_labels") && error.contains("a list"), "{error}");
    let mut stretched = with_keys(&[("llama.rope.scaling.factor", Value::F32(4.0))]);
    let floats = TensorType::from_name("F32").unwrap();
    let ones: Vec<u8> = (0..HIDDEN / HEADS / 2).flat_map(|_| 1f32.to_le_bytes()).collect();
    stretched.tensor("rope_freqs.weight", &[HIDDEN / HEADS / 2], floats, ones).unwrap();
    let error = open(&stretched.finish()).err().unwrap().to_string();
    assert!(error.contains("rope.scaling.factor") && error.contains("rope_freqs"), "{error}");
}

#[test]
fn values_that_change_nothing_pass_in_silence() {
    let scale = ((HIDDEN / HEADS) as f32).powf(-0.5);
    let keys = [
        ("general.type", Value::String(b"model")),
        ("llama.expert_count", Value::U32(0)),
        ("llama.expert_used_count", Value::U32(0)),
        ("llama.attention.scale", Value::F32(scale)),
        ("llama.logit_scale", Value::F32(1.0)),
        ("llama.residual_scale", Value::F32(0.0)),
        ("llama.attention.causal", Value::Bool(true)),
        ("llama.vocab_size", Value::U32(VOCAB as u32)),
        ("llama.rope.scaling.finetuned", Value::Bool(true)),
        ("llama.ssm.state_size", Value::U32(0)),
        ("llava.expert_count", Value::U32(8)),
    ];
    let checkpoint = open(&with_keys(&keys).finish()).unwrap();
    assert!(checkpoint.remarks.is_empty(), "{:?}", checkpoint.remarks);
}

#[test]
fn keys_that_nobody_knows_are_told() {
    let keys = [("llama.fancy.new", Value::F32(0.5)), ("llama.other", Value::U32(1))];
    let checkpoint = open(&with_keys(&keys).finish()).unwrap();
    let [remark] = checkpoint.remarks.as_slice() else { panic!("{:?}", checkpoint.remarks) };
    assert!(remark.ends_with("count for nothing: llama.fancy.new, llama.other"), "{remark}");
    let many: Vec<String> = (0..40).map(|at| format!("llama.x{at}\u{1b}[31m{}", "y".repeat(5000))).collect();
    let mut writer = with_keys(&[]);
    many.iter().for_each(|key| writer.put(key, Value::U32(1)).unwrap());
    let checkpoint = open(&writer.finish()).unwrap();
    let remark = &checkpoint.remarks[0];
    assert!(
        remark.ends_with(" and 35 more") && remark.len() < 1000 && !remark.contains('\u{1b}'),
        "{remark}"
    );
}

#[test]
fn a_layer_beyond_the_last_is_told() {
    let mut writer = llama("F32", &[]);
    let floats = TensorType::from_name("F32").unwrap();
    writer.tensor("blk.1.ffn_norm.weight", &[HIDDEN], floats, vec![0; HIDDEN * 4]).unwrap();
    let checkpoint = open(&writer.finish()).unwrap();
    let export = Export::new(&checkpoint, &ExportOptions::default()).unwrap();
    let [remark] = export.remarks() else { panic!("{:?}", export.remarks()) };
    assert!(remark.starts_with("1 tensor ") && remark.ends_with(": blk.1.ffn_norm.weight"), "{remark}");
}

#[test]
fn how_tokens_are_to_be_chosen_travels_in_the_words_of_a_folder() {
    let inside = |keys: &[(&str, Value<'static>)]| {
        let checkpoint = open(&with_keys(keys).finish()).unwrap();
        let mut file = Vec::new();
        let export = Export::new(&checkpoint, &ExportOptions::default()).unwrap();
        export.write(&mut file, &mut |_| ()).unwrap();
        let pte = Pte::read(Bytes::copy_of(&file), &Limits::default()).unwrap();
        pte.named(GENERATION_CONFIG).map(|bytes| serde_json::from_slice::<serde_json::Value>(&bytes).unwrap())
    };
    assert_eq!(inside(&[]), None);
    let keys = [
        ("general.sampling.temp", Value::F32(0.7)),
        ("general.sampling.top_k", Value::I32(20)),
        ("general.sampling.top_p", Value::F32(0.95)),
        ("general.sampling.min_p", Value::F32(f32::NAN)),
        ("general.sampling.penalty_repeat", Value::F32(1.05)),
        ("general.sampling.mirostat", Value::I32(2)),
    ];
    let wanted = serde_json::json!({
        "do_sample": true, "temperature": 0.7, "top_k": 20, "top_p": 0.95, "repetition_penalty": 1.05
    });
    assert_eq!(inside(&keys), Some(wanted));
    let greedy = inside(&[("general.sampling.temp", Value::F32(0.0))]).unwrap();
    assert_eq!(greedy, serde_json::json!({"do_sample": false, "temperature": 0.0}));
}
