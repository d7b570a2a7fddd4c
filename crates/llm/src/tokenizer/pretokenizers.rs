//! How byte-pair vocabularies of GGUF files cut texts into words, by the name that the file gives in
//! `tokenizer.ggml.pre`. The names are llama.cpp's; the patterns are those of the models' own tokenizers.

use super::bpe::Alphabet;

/// What a name stands for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pretokenizer {
    /// Applied one after the other.
    pub(super) patterns: &'static [&'static str],
    /// Whether a word that is a token stays one, whatever the merges say.
    pub(super) whole_words: bool,
    /// Whether BOS is added where the file says nothing about it.
    pub(super) add_bos: bool,
    pub(super) alphabet: Alphabet,
}

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)";
const LLAMA3: &str = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN35: &str = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const DEEPSEEK3: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##;
const BAILING: &str = r"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+";
const SEED: &str = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+";
const BLOOM: &str = r" ?[^(\s|.,!?…。，、।۔،)]+";
const CJK_WORDS: &str = "[一-龥ࠀ-一가-\u{d7ff}]+";
const CJK_KANA: &str = "[一-龥\u{3040}-ゟ゠-ヿ]+";
const LINES: &str = r"[^\n]+|[\n]+";

/// Finds a pretokenizer by its name.
pub(super) fn find(name: &str) -> Option<Pretokenizer> {
    let plain = |patterns| Pretokenizer {
        patterns,
        whole_words: false,
        add_bos: false,
        alphabet: Alphabet::ByteLevel,
    };
    let whole = |patterns| Pretokenizer { whole_words: true, ..plain(patterns) };
    Some(match name {
        "llama3" | "llama-v3" | "llama-bpe" | "falcon3" | "falcon-h1" | "pixtral" | "midm-2.0" | "lfm2"
        | "jina-v5-nano" => Pretokenizer { add_bos: true, ..whole(&[LLAMA3]) },
        "dbrx" | "smaug-bpe" | "chatglm-bpe" => plain(&[LLAMA3]),
        "glm4" | "glm5" => whole(&[LLAMA3]),
        "qwen2" | "deepseek-r1-qwen" | "kormo" | "f2llmv2" | "stablelm2" | "megrez" | "hunyuan"
        | "solar-open" | "grok-2" => plain(&[QWEN2]),
        "qwen35" => plain(&[QWEN35]),
        "gpt-2" | "phi-2" | "jina-es" | "jina-de" | "gigachat" | "jina-v2-es" | "jina-v2-de" | "a.x-4.0"
        | "mellum" | "modern-bert" | "jina-v1-en" | "jina-v2-code" | "roberta-bpe" | "mpt" | "olmo"
        | "jais" | "trillion" | "granite-docling" | "exaone4" => plain(&[GPT2]),
        "starcoder" | "refact" | "command-r" | "smollm" | "codeshell" | "exaone" | "minerva-7b"
        | "mellum2" => plain(&[r"\p{N}", GPT2]),
        "falcon" => plain(&[r"[\p{P}\$\+<=>\^~\|`]+", GPT2, r"[0-9][0-9][0-9]"]),
        "default" => plain(&[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"]),
        "deepseek-llm" => plain(&[
            r"[\r\n]",
            r"\s?[\p{Lu}\p{Ll}\p{Lt}]+",
            r"\s?[!-/:-~！-／：-～‘-‟　-。]+",
            r"\s+$",
            CJK_WORDS,
            r"\p{N}+",
        ]),
        "deepseek-coder" => plain(&[r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK_WORDS, r"\p{N}"]),
        "deepseek-v3" | "hunyuan-dense" | "joyai-llm" | "hy_v4" => {
            plain(&[r"\p{N}{1,3}", CJK_KANA, DEEPSEEK3])
        }
        "tekken" => Pretokenizer { add_bos: true, ..whole(&[TEKKEN]) },
        "gpt-4o" | "llama4" | "kanana2" | "talkie" | "minimax-m2" => plain(&[GPT4O]),
        "bailingmoe" | "bailingmoe2" | "llada-moe" => plain(&[BAILING]),
        "seed-coder" => plain(&[SEED]),
        "bloom" | "gpt3-finnish" | "poro-chat" => plain(&[BLOOM]),
        "viking" => plain(&[BLOOM, r"\p{N}"]),
        "laguna" => plain(&[LINES, QWEN2]),
        "gemma4" => Pretokenizer { alphabet: Alphabet::Characters, add_bos: true, ..plain(&[LINES]) },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::find;
    use crate::tokenizer::TokenizerFormat;
    use crate::tokenizer::split::Splitter;

    #[test]
    fn every_pattern_compiles_and_cuts() {
        let names = ["llama3", "qwen2", "qwen35", "gpt-2", "smollm", "falcon", "default", "deepseek-llm"];
        let more = [
            "deepseek-coder",
            "deepseek-v3",
            "tekken",
            "gpt-4o",
            "bailingmoe",
            "seed-coder",
            "viking",
            "laguna",
        ];
        for name in names.into_iter().chain(more) {
            let pretokenizer = find(name).unwrap();
            let splitter = Splitter::new(TokenizerFormat::Gguf, pretokenizer.patterns).unwrap();
            let text = "Hello, wörld 12345!\n  日本語 it's";
            assert_eq!(splitter.words(text).unwrap().concat(), text, "{name}");
        }
        assert!(find("no-such-model").is_none());
    }
}
