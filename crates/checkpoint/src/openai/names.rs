//! OpenAI's names of what architectures ask for.

/// Where the weights are in the file.
pub(super) const PREFIX: &str = "model_state_dict.";

/// Parts of names, as Hugging Face has them and as OpenAI does; the first that fits counts, then those behind it.
const NAMES: [(&str, &str); 15] = [
    ("embed_tokens.weight", "token_embedding.weight"),
    ("embed_positions.weight", "positional_embedding"),
    ("encoder.layer_norm", "encoder.ln_post"),
    ("decoder.layer_norm", "decoder.ln"),
    (".layers.", ".blocks."),
    (".self_attn_layer_norm", ".attn_ln"),
    (".encoder_attn_layer_norm", ".cross_attn_ln"),
    (".final_layer_norm", ".mlp_ln"),
    (".self_attn.", ".attn."),
    (".encoder_attn.", ".cross_attn."),
    (".fc1.", ".mlp.0."),
    (".fc2.", ".mlp.2."),
    (".q_proj.", ".query."),
    (".k_proj.", ".key."),
    (".v_proj.", ".value."),
];

/// A name as the file has it.
pub(super) fn stored(name: &str) -> String {
    let name = name.strip_prefix("model.").unwrap_or(name);
    let name = NAMES.iter().fold(name.to_owned(), |name, (ours, theirs)| name.replacen(ours, theirs, 1));
    name.replacen(".out_proj.", ".out.", 1)
}

#[cfg(test)]
mod tests {
    use super::stored;

    #[test]
    fn names_are_openais() {
        for (ours, theirs) in [
            ("model.encoder.conv1.weight", "encoder.conv1.weight"),
            ("model.encoder.embed_positions.weight", "encoder.positional_embedding"),
            ("model.encoder.layer_norm.bias", "encoder.ln_post.bias"),
            ("model.encoder.layers.2.self_attn.out_proj.bias", "encoder.blocks.2.attn.out.bias"),
            ("model.encoder.layers.2.self_attn_layer_norm.weight", "encoder.blocks.2.attn_ln.weight"),
            ("model.decoder.embed_tokens.weight", "decoder.token_embedding.weight"),
            ("model.decoder.layers.10.encoder_attn.k_proj.weight", "decoder.blocks.10.cross_attn.key.weight"),
            ("model.decoder.layers.0.encoder_attn_layer_norm.bias", "decoder.blocks.0.cross_attn_ln.bias"),
            ("model.decoder.layers.0.final_layer_norm.bias", "decoder.blocks.0.mlp_ln.bias"),
            ("model.decoder.layers.0.fc2.weight", "decoder.blocks.0.mlp.2.weight"),
            ("model.decoder.layer_norm.weight", "decoder.ln.weight"),
        ] {
            assert_eq!(stored(ours), theirs);
        }
    }
}
