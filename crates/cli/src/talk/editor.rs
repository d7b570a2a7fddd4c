//! Lines of a chat, with editing and a history that outlives it.

use crate::failure::Failure;
use crate::home;
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;
use std::io::IsTerminal;
use std::path::PathBuf;

/// Lines with editing and a history, where there is a terminal.
pub(crate) struct Editor {
    editor: DefaultEditor,
    history: Option<PathBuf>,
    interactive: bool,
}

impl Editor {
    pub(crate) fn new() -> Result<Editor, Failure> {
        let mut editor =
            DefaultEditor::new().map_err(|error| Failure::new(format!("cannot read lines: {error}")))?;
        let interactive = std::io::stdin().is_terminal();
        let history = home::history().filter(|_| interactive);
        if let Some(history) = &history {
            // The first time there is none.
            let _ = editor.load_history(history);
        }
        Ok(Editor { editor, history, interactive })
    }

    /// Whether somebody types.
    pub(crate) fn interactive(&self) -> bool {
        self.interactive
    }

    /// The next line, with those that it continues in; `None` at the end.
    pub(crate) fn line(&mut self) -> Result<Option<String>, Failure> {
        let mut whole = String::new();
        loop {
            let prompt = match (self.interactive, whole.is_empty()) {
                (false, _) => "",
                (true, true) => "> ",
                (true, false) => ". ",
            };
            match self.editor.readline(prompt) {
                Ok(line) => {
                    whole += &line;
                    if whole.ends_with('\\') {
                        whole.pop();
                        whole.push('\n');
                        continue;
                    }
                    if self.interactive && !whole.trim().is_empty() {
                        let _ = self.editor.add_history_entry(whole.as_str());
                    }
                    return Ok(Some(whole));
                }
                Err(ReadlineError::Interrupted) => return Ok(Some(String::new())),
                Err(ReadlineError::Eof) => return Ok((!whole.is_empty()).then_some(whole)),
                Err(error) => return Err(Failure::new(format!("cannot read a line: {error}"))),
            }
        }
    }

    /// A history that cannot be written is no reason to fail.
    pub(crate) fn keep_history(&mut self) {
        let Some(path) = &self.history else { return };
        let folder = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        if let Err(error) = folder.map_err(ReadlineError::from).and_then(|()| self.editor.save_history(path))
        {
            tracing::warn!(%error, path = %path.display(), "the history was not kept");
        }
    }
}
