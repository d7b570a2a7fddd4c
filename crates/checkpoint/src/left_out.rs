//! What is said of a checkpoint's tensors that no part of the program is made of.

/// Tensors that are named when there are more.
const NAMED: usize = 4;
/// Characters of a name that are shown.
const LONGEST_NAME: usize = 80;

/// The parts of a model that reads more than text, each by what the names of its modules have in them.
const TOWERS: [(&str, &[&str]); 2] = [
    ("vision", &["vision", "visual", "image", "multi_modal_projector", "mm_projector", "connector"]),
    ("audio", &["audio", "speech"]),
];

/// A sentence for the parts that read pictures and sound, and one for all other tensors.
pub(crate) fn left_out(tensors: &[String], sees: bool) -> Vec<String> {
    let mut towers: Vec<&str> = Vec::new();
    let (mut in_towers, mut others) = (0usize, Vec::new());
    for tensor in tensors {
        match tower(tensor) {
            Some(part) => {
                in_towers += 1;
                if !towers.contains(&part) {
                    towers.push(part);
                }
            }
            None => others.push(tensor),
        }
    }
    let mut said = Vec::new();
    if !towers.is_empty() {
        let noun = if towers.len() == 1 { "part is" } else { "parts are" };
        let reads = if sees { "text and images" } else { "text alone" };
        said.push(format!(
            "the model's {} {noun} left out ({in_towers} tensors): the program reads {reads}",
            towers.join(" and ")
        ));
    }
    if !others.is_empty() {
        let (count, named) = (others.len(), others.len().min(NAMED));
        let (noun, verb) = if count == 1 { ("tensor", "is") } else { ("tensors", "are") };
        let rest = if count > named { format!(" and {} more", count - named) } else { String::new() };
        said.push(format!(
            "{count} {noun} of the checkpoint {verb} not used, which this architecture has no place for: {}{rest}",
            others[..named].iter().map(|name| shown(name)).collect::<Vec<_>>().join(", ")
        ));
    }
    said
}

/// A name that a stranger chose, as it may be printed.
pub(crate) fn shown(name: &str) -> String {
    name.chars().take(LONGEST_NAME).flat_map(char::escape_debug).collect()
}

/// The part that a tensor belongs to, by the modules that its name begins with.
fn tower(tensor: &str) -> Option<&'static str> {
    let modules = || tensor.split('.').take_while(|module| *module != "layers").take(3);
    let belongs = |marks: &[&str]| modules().any(|module| marks.iter().any(|mark| module.contains(mark)));
    TOWERS.iter().find(|(_, marks)| belongs(marks)).map(|&(part, _)| part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn towers_are_told_as_parts_and_others_by_name() {
        let said = |names: &[&str]| {
            left_out(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>(), false)
        };
        assert!(said(&[]).is_empty());
        let towers = said(&[
            "vision_tower.vision_model.encoder.layers.0.mlp.fc1.weight",
            "model.visual.blocks.0.attn.qkv.weight",
            "multi_modal_projector.linear_1.weight",
            "model.audio_tower.layers.0.norm.weight",
        ]);
        assert_eq!(
            towers,
            ["the model's vision and audio parts are left out (4 tensors): the program reads text alone"]
        );
        let heard = ["model.audio_tower.output_proj.bias", "model.embed_audio.embedding_projection.weight"];
        assert_eq!(
            left_out(&heard.map(str::to_owned), true),
            ["the model's audio part is left out (2 tensors): the program reads text and images"]
        );
        let others = said(&["a", "b", "c", "d", "e", "model.layers.0.visual.weight"]);
        assert_eq!(others.len(), 1);
        assert!(
            others[0].starts_with("6 tensors") && others[0].ends_with("a, b, c, d and 2 more"),
            "{others:?}"
        );
        assert!(said(&["q_proj.bias"])[0].starts_with("1 tensor of the checkpoint is not used"));
    }
}
