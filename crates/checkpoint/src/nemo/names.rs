//! NeMo's names of what architectures ask for.

/// Beginnings of names, as Hugging Face has them and as NeMo does.
const BEGINNINGS: [(&str, &str); 7] = [
    ("encoder.subsampling.layers.", "encoder.pre_encode.conv."),
    ("encoder.subsampling.linear.", "encoder.pre_encode.out."),
    ("encoder_projector.", "joint.enc."),
    ("decoder.embedding.", "decoder.prediction.embed."),
    ("decoder.lstm.", "decoder.prediction.dec_rnn.lstm."),
    ("decoder.decoder_projector.", "joint.pred."),
    ("joint.head.", "joint.joint_net.2."),
];

/// Parts of names in layers of the encoder.
const PARTS: [(&str, &str); 8] = [
    (".self_attn.q_proj.", ".self_attn.linear_q."),
    (".self_attn.k_proj.", ".self_attn.linear_k."),
    (".self_attn.v_proj.", ".self_attn.linear_v."),
    (".self_attn.o_proj.", ".self_attn.linear_out."),
    (".self_attn.relative_k_proj.", ".self_attn.linear_pos."),
    (".self_attn.bias_u", ".self_attn.pos_bias_u"),
    (".self_attn.bias_v", ".self_attn.pos_bias_v"),
    (".conv.norm.", ".conv.batch_norm."),
];

/// A name as the file has it.
pub(super) fn stored(name: &str) -> String {
    if let Some(rest) = name.strip_prefix("ctc_head.") {
        return format!("decoder.decoder_layers.0.{rest}");
    }
    for (ours, theirs) in BEGINNINGS {
        if let Some(rest) = name.strip_prefix(ours) {
            return format!("{theirs}{rest}");
        }
    }
    PARTS.iter().fold(name.to_owned(), |name, (ours, theirs)| name.replacen(ours, theirs, 1))
}

#[cfg(test)]
mod tests {
    use super::stored;

    #[test]
    fn names_are_nemos() {
        for (ours, theirs) in [
            ("encoder.subsampling.layers.5.weight", "encoder.pre_encode.conv.5.weight"),
            ("encoder.subsampling.linear.bias", "encoder.pre_encode.out.bias"),
            (
                "encoder.layers.3.feed_forward1.linear2.weight",
                "encoder.layers.3.feed_forward1.linear2.weight",
            ),
            ("encoder.layers.3.self_attn.o_proj.weight", "encoder.layers.3.self_attn.linear_out.weight"),
            ("encoder.layers.3.self_attn.bias_v", "encoder.layers.3.self_attn.pos_bias_v"),
            ("encoder.layers.3.conv.norm.running_var", "encoder.layers.3.conv.batch_norm.running_var"),
            ("decoder.lstm.weight_hh_l1", "decoder.prediction.dec_rnn.lstm.weight_hh_l1"),
            ("joint.head.bias", "joint.joint_net.2.bias"),
            ("ctc_head.weight", "decoder.decoder_layers.0.weight"),
        ] {
            assert_eq!(stored(ours), theirs);
        }
    }
}
