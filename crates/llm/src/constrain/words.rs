//! What the grammar engine says when it gives up, in words that help whoever wrote the schema or the grammar: the engine
//! speaks of its own options and states.

/// What its messages have in them, and what that means.
const MEANINGS: [(&str, &str); 6] = [
    (
        "coerce_one_of",
        "`oneOf` whose parts overlap; write `anyOf`, or give each part a property of another `const`",
    ),
    ("NoExtension", "nothing that can be said here fits it"),
    ("LexerTooComplex", "its patterns are too large"),
    ("ParserTooComplex", "it has too many ways to go on at once"),
    ("fuel", "its patterns are too large"),
    ("InternalError", "the grammar engine failed on it"),
];

/// The same for beginnings of messages whose ends say which part is meant.
const BEGINNINGS: [(&str, &str); 2] = [
    ("Unsatisfiable schema: ", "no value fits it: "),
    ("Unimplemented keys: ", "it asks for what cannot be held: "),
];

/// A message of the engine; it goes on with the state of its parser, which is left out.
pub(super) fn in_our_words(message: &str) -> String {
    let first = message.lines().next().unwrap_or_default();
    if let Some((_, ours)) = MEANINGS.iter().find(|(theirs, _)| first.contains(theirs)) {
        return (*ours).to_owned();
    }
    let part = |(theirs, ours): &(&str, &str)| Some(format!("{ours}{}", first.split_once(theirs)?.1));
    BEGINNINGS.iter().find_map(part).unwrap_or_else(|| first.to_owned())
}

#[cfg(test)]
mod tests {
    use super::in_our_words;

    #[test]
    fn states_of_the_engine_are_not_shown() {
        assert_eq!(in_our_words("NoExtensionBias\nstate: ..."), "nothing that can be said here fits it");
        assert_eq!(
            in_our_words("Unsatisfiable schema: minimum (3) is greater than maximum (2)"),
            "no value fits it: minimum (3) is greater than maximum (2)"
        );
        assert_eq!(in_our_words("unknown name: x"), "unknown name: x");
    }
}
