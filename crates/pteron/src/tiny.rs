//! Models of a few thousand random weights, written to a folder: what they say is nonsense, how they say it is not. For the
//! examples in this crate's documentation, and for tests.

use pteron_companion::{
    CHAT_TEMPLATE, GENERATION_CONFIG, TOKENIZER, TOKENIZER_CONFIG, TOKENIZER_FORMAT, TokenizerConfig,
    TokenizerFormat,
};
use pteron_format::WriteOptions;
use pteron_models::architectures::Llama;
use pteron_models::shapes::tiny;
use pteron_models::{KvCache, Logits, Model, ModelOptions, Position, RandomWeights};
use pteron_tensor::{Bytes, DType};
use serde_json::{Map, Value, json};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Marks of turns, behind the 256 bytes.
const MARKS: [&str; 6] = ["<|turn|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>", "<|end|>"];
const CONTEXT: usize = 512;
/// Positions that a session may ask for.
const LONGEST: usize = 1024;

const TEMPLATE: &str = "{% if tools %}<|turn|><|system|>{{ tools | tojson }}<|end|>{% endif %}\
     {% for message in messages %}<|turn|><|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}\
     {% if add_generation_prompt %}<|turn|><|assistant|>{% endif %}";

/// A language model with a tokenizer and a chat template, which takes the likeliest token unless it is asked not to.
pub fn talking(folder: &Path) -> io::Result<PathBuf> {
    let tokenizer = tokenizer().to_string();
    let ends = [("eos_token".to_owned(), MARKS[MARKS.len() - 1].to_owned())];
    let config = json!(TokenizerConfig { tokens: ends.into(), ..TokenizerConfig::default() }).to_string();
    let carried = [
        (TOKENIZER, tokenizer.as_str()),
        (TOKENIZER_FORMAT, TokenizerFormat::TokenizerJson.name()),
        (TOKENIZER_CONFIG, config.as_str()),
        (CHAT_TEMPLATE, TEMPLATE),
        (GENERATION_CONFIG, "{\"do_sample\": false}"),
    ];
    write(&folder.join("talking.pte"), Logits::Selected, &carried)
}

/// A language model without a tokenizer, of the same weights, which gives the logits of the last token only.
pub fn silent(folder: &Path) -> io::Result<PathBuf> {
    write(&folder.join("silent.pte"), Logits::Last, &[])
}

fn write(path: &Path, logits: Logits, carried: &[(&str, &str)]) -> io::Result<PathBuf> {
    let end = 256 + MARKS.len() as u32 - 1;
    let architecture = Llama {
        vocab_size: 256 + MARKS.len(),
        max_position_embeddings: LONGEST,
        tie_word_embeddings: false,
        bos_token_id: None,
        eos_token_id: vec![end],
        ..tiny::llama()
    };
    let options = ModelOptions {
        activations: DType::F32,
        cache: DType::F32,
        context: LONGEST,
        session_context: Some(CONTEXT),
        chunk: 64,
        logits,
        kv: KvCache::OffGraph,
        position: Position::Number,
        ..ModelOptions::default()
    };
    let model = Model::build(&architecture, Arc::new(RandomWeights::new(7)), options);
    let mut program = model.map_err(io::Error::other)?.program(|_| ()).map_err(io::Error::other)?;
    for (key, text) in carried {
        program.name(key, Bytes::copy_of(text.as_bytes())).map_err(io::Error::other)?;
    }
    program.write_file(path, &WriteOptions::default()).map_err(io::Error::other)?;
    Ok(path.to_owned())
}

/// A BERT of one layer as a checkpoint folder of random weights, whose tokens are bytes.
pub fn embedding(folder: &Path) -> io::Result<PathBuf> {
    let place = folder.join("embedding");
    std::fs::create_dir_all(&place)?;
    let vocabulary = 256 + MARKS.len();
    let config = json!({
        "model_type": "bert", "architectures": ["BertModel"], "vocab_size": vocabulary, "hidden_size": WIDTH,
        "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": WIDTH, "max_position_embeddings": 64,
    });
    std::fs::write(place.join("config.json"), config.to_string())?;
    std::fs::write(place.join("tokenizer.json"), tokenizer().to_string())?;
    let square = || vec![WIDTH, WIDTH];
    let mut tensors: Vec<(String, Vec<usize>)> = vec![
        ("embeddings.word_embeddings.weight".into(), vec![vocabulary, WIDTH]),
        ("embeddings.position_embeddings.weight".into(), vec![64, WIDTH]),
        ("embeddings.token_type_embeddings.weight".into(), vec![2, WIDTH]),
    ];
    let layer = "encoder.layer.0";
    for module in
        ["attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"]
    {
        tensors.push((format!("{layer}.{module}.weight"), square()));
        tensors.push((format!("{layer}.{module}.bias"), vec![WIDTH]));
    }
    for module in ["intermediate.dense", "output.dense"] {
        tensors.push((format!("{layer}.{module}.weight"), square()));
        tensors.push((format!("{layer}.{module}.bias"), vec![WIDTH]));
    }
    for module in [
        "embeddings.LayerNorm".to_owned(),
        format!("{layer}.attention.output.LayerNorm"),
        format!("{layer}.output.LayerNorm"),
    ] {
        tensors.push((format!("{module}.weight"), vec![WIDTH]));
        tensors.push((format!("{module}.bias"), vec![WIDTH]));
    }
    std::fs::write(place.join("model.safetensors"), spread(tensors))?;
    Ok(place)
}

/// Tensors of f32 between -1 and 1, no two the same.
fn spread(tensors: Vec<(String, Vec<usize>)>) -> Vec<u8> {
    let (mut header, mut data, mut seed) = (Map::new(), Vec::new(), 1u32);
    for (name, shape) in tensors {
        let start = data.len();
        for _ in 0..shape.iter().product() {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            data.extend(((seed >> 8) as f32 / (1 << 23) as f32 - 1.0).to_le_bytes());
        }
        header.insert(name, json!({"dtype": "F32", "shape": shape, "data_offsets": [start, data.len()]}));
    }
    let header = Value::Object(header).to_string();
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &data].concat()
}

/// Every byte, as byte-level vocabularies spell them, and the marks.
fn tokenizer() -> Value {
    let shown = |byte: &u32| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let hidden = (0..256u32).filter(|byte| !shown(byte)).zip(0x100u32..).map(|(_, shown)| shown);
    let letters = (0..256u32).filter(shown).chain(hidden).filter_map(char::from_u32);
    let vocabulary: Map<String, Value> =
        letters.enumerate().map(|(id, letter)| (letter.to_string(), id.into())).collect();
    let mark = |(id, mark): (u32, &str)| {
        json!({
            "id": id, "content": mark, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true
        })
    };
    let added: Vec<Value> = (256..).zip(MARKS).map(mark).collect();
    let level =
        json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": null,
        "pre_tokenizer": level, "post_processor": null, "decoder": level,
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": vocabulary, "merges": []
        }
    })
}

const SPEECH_VOCABULARY: usize = 51_864;
const WIDTH: usize = 32;
const ATTENTIONS: [&str; 3] =
    ["encoder.layers.0.self_attn", "decoder.layers.0.self_attn", "decoder.layers.0.encoder_attn"];

/// A Whisper as a checkpoint folder: weights of zero, but for a decoder that says `A`, for two seconds, of every window.
pub fn hearing(folder: &Path) -> io::Result<PathBuf> {
    let place = folder.join("hearing");
    std::fs::create_dir_all(&place)?;
    let config = json!({
        "model_type": "whisper", "architectures": ["WhisperForConditionalGeneration"],
        "vocab_size": SPEECH_VOCABULARY, "num_mel_bins": 80, "d_model": WIDTH, "encoder_layers": 1,
        "encoder_attention_heads": 1, "encoder_ffn_dim": 32, "decoder_layers": 1, "decoder_attention_heads": 1,
        "decoder_ffn_dim": 32, "max_source_positions": 1500, "max_target_positions": 448,
    });
    std::fs::write(place.join("config.json"), config.to_string())?;
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let tokens = (0..=255usize).map(|byte| {
        let (high, low) = (alphabet[byte >> 2] as char, alphabet[(byte & 3) << 4] as char);
        format!("{high}{low}== {byte}\n")
    });
    std::fs::write(place.join("tokenizer.tiktoken"), tokens.collect::<String>())?;
    std::fs::write(place.join("model.safetensors"), speech_weights())?;
    Ok(place)
}

fn speech_weights() -> Vec<u8> {
    let mut tensors: Vec<(String, Vec<usize>)> = vec![
        ("encoder.embed_positions.weight".into(), vec![1500, WIDTH]),
        ("decoder.embed_positions.weight".into(), vec![448, WIDTH]),
        ("decoder.embed_tokens.weight".into(), vec![SPEECH_VOCABULARY, WIDTH]),
    ];
    // Keys have no bias.
    tensors.extend(ATTENTIONS.map(|attention| (format!("{attention}.k_proj.weight"), vec![WIDTH, WIDTH])));
    let mut pair = |name: &str, weight: Vec<usize>| {
        tensors.push((format!("{name}.bias"), vec![weight[0]]));
        tensors.push((format!("{name}.weight"), weight));
    };
    pair("encoder.conv1", vec![WIDTH, 80, 3]);
    pair("encoder.conv2", vec![WIDTH, WIDTH, 3]);
    for half in ["encoder", "decoder"] {
        pair(&format!("{half}.layer_norm"), vec![WIDTH]);
        for norm in ["self_attn_layer_norm", "final_layer_norm"] {
            pair(&format!("{half}.layers.0.{norm}"), vec![WIDTH]);
        }
        for layer in ["fc1", "fc2"] {
            pair(&format!("{half}.layers.0.{layer}"), vec![32, WIDTH]);
        }
    }
    pair("decoder.layers.0.encoder_attn_layer_norm", vec![WIDTH]);
    for attention in ATTENTIONS {
        for projection in ["q_proj", "v_proj", "out_proj"] {
            pair(&format!("{attention}.{projection}"), vec![WIDTH, WIDTH]);
        }
    }
    let (mut header, mut data) = (Map::new(), Vec::new());
    for (name, shape) in tensors {
        let start = data.len();
        let mut values = vec![0f32; shape.iter().product()];
        // Each position looks at a feature of its own, and there one token is far ahead of all others: the time 0, a word,
        // the time 2 s, the end.
        match name.as_str() {
            "decoder.layer_norm.weight" => values.fill(1.0),
            "decoder.embed_positions.weight" => (0..4).for_each(|at| values[at * WIDTH + at] = 100.0),
            "decoder.embed_tokens.weight" => {
                for (at, token) in [50_363, usize::from(b'A'), 50_463, 50_256].into_iter().enumerate() {
                    values[token * WIDTH + at] = 4.0;
                }
            }
            _ => {}
        }
        data.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        let about = json!({"dtype": "F32", "shape": shape, "data_offsets": [start, data.len()]});
        header.insert(format!("model.{name}"), about);
    }
    let header = Value::Object(header).to_string();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.extend(data);
    file
}

/// An image file (PNG, grey) of so many pixels, each with a number of its own.
pub fn image(width: u32, height: u32) -> Vec<u8> {
    let row = |y: u32| std::iter::once(0).chain((0..width).map(move |x| (y * width + x) as u8));
    let pixels: Vec<u8> = (0..height).flat_map(row).collect();
    // Blocks that are stored as they are.
    let mut packed = vec![0x78, 0x01];
    let blocks = pixels.chunks(0xffff);
    let last = blocks.len() - 1;
    for (number, block) in blocks.enumerate() {
        let length = block.len() as u16;
        packed.push(u8::from(number == last));
        packed.extend(length.to_le_bytes());
        packed.extend((!length).to_le_bytes());
        packed.extend(block);
    }
    let (low, high) = pixels.iter().fold((1u32, 0u32), |(low, high), &byte| {
        let low = (low + u32::from(byte)) % 65_521;
        (low, (high + low) % 65_521)
    });
    packed.extend((high << 16 | low).to_be_bytes());
    let header = [&width.to_be_bytes()[..], &height.to_be_bytes(), &[8, 0, 0, 0, 0]].concat();
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    for (kind, data) in [(b"IHDR", &header), (b"IDAT", &packed), (b"IEND", &Vec::new())] {
        let named = [kind.as_slice(), data].concat();
        let sum = named.iter().fold(u32::MAX, |sum, &byte| {
            (0..8).fold(sum ^ u32::from(byte), |sum, _| (sum >> 1) ^ (0xedb8_8320 & (sum & 1).wrapping_neg()))
        });
        file.extend((data.len() as u32).to_be_bytes());
        file.extend(named);
        file.extend((!sum).to_be_bytes());
    }
    file
}

/// A sound file (WAV, 16,000 samples a second) of so many seconds, which is not silent.
pub fn sound(seconds: f64) -> Vec<u8> {
    let count = (16_000.0 * seconds) as u32;
    let mut file = Vec::new();
    file.extend(b"RIFF");
    file.extend((36 + 2 * count).to_le_bytes());
    file.extend(b"WAVEfmt \x10\0\0\0\x01\0\x01\0\x80\x3e\0\0\0\x7d\0\0\x02\0\x10\0data");
    file.extend((2 * count).to_le_bytes());
    file.extend((0..count).flat_map(|n| ((n % 2000 * 7919 % 2000) as i16 - 1000).to_le_bytes()));
    file
}
