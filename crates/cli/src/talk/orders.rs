//! What can be typed in a chat besides words: orders that begin with a slash.

/// A line of a chat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Line<'l> {
    /// Nothing.
    Empty,
    /// Something to say.
    Say(&'l str),
    /// An order, with what follows it.
    Order(Order, &'l str),
    /// An order that does not exist.
    Unknown(&'l str),
}

/// An order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Help,
    Undo,
    Regenerate,
    Edit,
    Fork,
    Switch,
    Save,
    Load,
    Clear,
    Drop,
    Stats,
    Image,
    Quit,
}

/// Every order: its names, what it takes, what it does.
const ORDERS: [(Order, &[&str], &str, &str); 13] = [
    (Order::Help, &["help", "?"], "", "this list"),
    (Order::Image, &["image"], "FILE TEXT", "show an image; TEXT may come later"),
    (Order::Undo, &["undo"], "", "take back the last question and answer"),
    (Order::Regenerate, &["regenerate", "again"], "", "another answer to the last question"),
    (Order::Edit, &["edit"], "TEXT", "ask this in place of the last question"),
    (Order::Fork, &["fork"], "NAME", "keep a copy under a name, and go on"),
    (Order::Switch, &["switch"], "NAME", "change places with the copy of that name"),
    (Order::Save, &["save"], "FILE", "write the conversation to a file"),
    (Order::Load, &["load"], "FILE", "go on with the conversation in a file"),
    (Order::Clear, &["clear"], "", "begin anew"),
    (Order::Drop, &["drop"], "N", "leave out the N oldest turns"),
    (Order::Stats, &["stats"], "", "what the last answer took"),
    (Order::Quit, &["quit", "exit", "bye"], "", "leave; so does Ctrl-D"),
];

/// What a line is. Two slashes at the beginning stand for one that is said.
pub(crate) fn parse(line: &str) -> Line<'_> {
    let line = line.trim();
    let Some(order) = line.strip_prefix('/') else {
        return if line.is_empty() { Line::Empty } else { Line::Say(line) };
    };
    if order.starts_with('/') {
        return Line::Say(order);
    }
    let (name, rest) = order.split_once(char::is_whitespace).unwrap_or((order, ""));
    let found = ORDERS.iter().find(|(_, names, _, _)| names.contains(&name));
    found.map_or(Line::Unknown(name), |(order, ..)| Line::Order(*order, rest.trim()))
}

/// The list of orders.
pub(crate) fn help() -> String {
    let mut text = String::new();
    for (_, names, takes, does) in ORDERS {
        let name = format!("/{} {takes}", names[0]);
        text += &format!("  {name:<16} {does}\n");
    }
    text + "  Ctrl-C           stop the answer\n  a line that ends with \\ goes on in the next one\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_words_or_orders() {
        let cases = [
            ("", Line::Empty),
            ("  hello / there ", Line::Say("hello / there")),
            ("/undo", Line::Order(Order::Undo, "")),
            ("/save  my chat.txt ", Line::Order(Order::Save, "my chat.txt")),
            ("/exit", Line::Order(Order::Quit, "")),
            ("//not an order", Line::Say("/not an order")),
            ("/nothing at all", Line::Unknown("nothing")),
        ];
        for (line, meant) in cases {
            assert_eq!(parse(line), meant, "{line:?}");
        }
        assert!(help().lines().all(|line| line.chars().count() <= 60), "{}", help());
        assert!(
            ORDERS
                .iter()
                .all(|(order, names, ..)| parse(&format!("/{}", names[0])) == Line::Order(*order, ""))
        );
    }
}
