//! The binary in a terminal of 80 columns, with somebody who types: what `chat` shows, what the interrupt key and a change of
//! size do, how wide tables are, what is coloured and what is not let through.
//!
//! A terminal belongs to a session of processes. A child of this test begins one and then becomes the binary; that needs
//! no code between fork and exec.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test may panic, and this one tells how it went"
)]

#[cfg(unix)]
mod support;

#[cfg(not(unix))]
fn main() {}

#[cfg(unix)]
fn main() {
    if let Some(binary) = std::env::var_os(unix::BINARY) {
        unix::become_first_process(&binary);
    }
    let tests: [(&str, fn()); 4] = [
        ("chat_shows_answers_stops_and_survives_a_resize", unix::chat),
        ("list_fits_the_terminal", unix::list),
        ("errors_are_coloured_unless_that_is_unwanted", unix::colours),
        ("control_characters_of_an_answer_are_escaped", unix::escapes),
    ];
    for (name, test) in tests {
        test();
        println!("test {name} ... ok");
    }
}

#[cfg(unix)]
mod unix {
    use super::support::{Folder, character_tokenizer, sample};
    use nix::fcntl::{FcntlArg, FdFlag, fcntl};
    use nix::pty::{OpenptyResult, Winsize, openpty};
    use nix::unistd::{setsid, ttyname};
    use std::ffi::OsStr;
    use std::fs::File;
    use std::io::{Read, Write};
    use std::os::fd::OwnedFd;
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command, Stdio};
    use std::sync::{Arc, Mutex};
    use std::time::{Duration, Instant};

    /// Names the binary in the environment of the child that becomes it.
    pub(super) const BINARY: &str = "PTERON_TEST_BINARY";

    /// Nothing here takes so long, even on a busy machine.
    const PATIENCE: Duration = Duration::from_secs(120);

    pub(super) fn become_first_process(binary: &OsStr) -> ! {
        let name = ttyname(std::io::stdin()).unwrap();
        setsid().unwrap();
        // The first process of a session gets the first terminal that it opens.
        let terminal = File::options().read(true).write(true).open(name).unwrap();
        std::mem::forget(terminal);
        let error = Command::new(binary).args(std::env::args_os().skip(1)).env_remove(BINARY).exec();
        panic!("cannot become the binary: {error}");
    }

    /// A terminal in which the binary runs.
    struct Terminal {
        keys: File,
        /// The other side of it, which the binary has.
        side: OwnedFd,
        child: Child,
        seen: Arc<Mutex<Vec<u8>>>,
        /// Bytes that a test has waited for.
        read: usize,
    }

    impl Drop for Terminal {
        fn drop(&mut self) {
            // A test that fails leaves nobody behind who talks on.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    impl Terminal {
        fn run(folder: &Folder, columns: u16, variables: &[(&str, &str)], arguments: &[&str]) -> Terminal {
            let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
            let OpenptyResult { master, slave: side } = openpty(&size, None).unwrap();
            // A child that had the terminal's own side would never learn that nobody looks any more.
            for end in [&master, &side] {
                fcntl(end, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).unwrap();
            }
            let keys = File::from(master);
            let ours = || Stdio::from(side.try_clone().unwrap());
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(arguments).stdin(ours()).stdout(ours()).stderr(ours());
            command.env("TERM", "xterm").env_remove("NO_COLOR").env("PTERON_HOME", folder.path("home"));
            command.env(BINARY, env!("CARGO_BIN_EXE_pteron")).envs(variables.iter().copied());
            let child = command.spawn().unwrap();
            let (seen, mut screen) = (Arc::new(Mutex::new(Vec::new())), keys.try_clone().unwrap());
            let all = seen.clone();
            std::thread::spawn(move || {
                let mut bytes = [0; 4096];
                // A terminal whose last process has gone is an error to read from.
                while let Ok(count @ 1..) = screen.read(&mut bytes) {
                    all.lock().unwrap().extend_from_slice(&bytes[..count]);
                }
            });
            Terminal { keys, side, child, seen, read: 0 }
        }

        fn press(&mut self, keys: &str) {
            self.keys.write_all(keys.as_bytes()).unwrap();
        }

        fn resize(&self, columns: u16) {
            let side = Stdio::from(self.side.try_clone().unwrap());
            let set = Command::new("stty").args(["cols", &columns.to_string()]).stdin(side).status().unwrap();
            assert!(set.success());
        }

        /// What is shown up to a text that must come, from where the last such text ended.
        fn wait(&mut self, text: &str) -> String {
            let start = Instant::now();
            loop {
                let seen = self.seen.lock().unwrap().clone();
                let new = &seen[self.read..];
                let found = new.windows(text.len()).position(|window| window == text.as_bytes());
                if let Some(at) = found {
                    self.read += at + text.len();
                    return plain(&new[..at + text.len()]);
                }
                assert!(start.elapsed() < PATIENCE, "{text:?} did not come; there is:\n{:.2000}", plain(new));
                std::thread::sleep(Duration::from_millis(10));
            }
        }

        /// The exit status, and all that was shown since the last wait.
        fn end(mut self) -> (i32, Vec<u8>) {
            let code = self.child.wait().unwrap().code().unwrap_or(-1);
            // The reader may be a moment behind.
            let (start, mut before) = (Instant::now(), usize::MAX);
            loop {
                let seen = self.seen.lock().unwrap().clone();
                if seen.len() == before || start.elapsed() > PATIENCE {
                    return (code, seen[self.read..].to_vec());
                }
                before = seen.len();
                std::thread::sleep(Duration::from_millis(200));
            }
        }
    }

    /// What a person reads: without the sequences that move the cursor and colour the text.
    fn plain(bytes: &[u8]) -> String {
        let text = String::from_utf8_lossy(bytes).replace("\r\n", "\n");
        let (mut out, mut characters) = (String::new(), text.chars());
        while let Some(c) = characters.next() {
            match c {
                '\u{1b}' if characters.next() == Some('[') => {
                    characters.find(|c| c.is_ascii_alphabetic());
                }
                '\u{1b}' => {}
                c => out.push(c),
            }
        }
        out
    }

    /// A model whose answers go on until they are stopped, and its tokenizer.
    fn endless(folder: &Folder) -> [String; 2] {
        let model = folder.write("model.pte", &sample("llama_offgraph", "model.pte"));
        [model, character_tokenizer(folder)]
    }

    pub(super) fn chat() {
        let folder = Folder::new();
        let [model, tokenizer] = endless(&folder);
        let endless = ["--temperature", "0", "--ignore-eos", "--context", "60000"];
        let arguments = [&["chat", &model, "--tokenizer", &tokenizer][..], &endless].concat();
        let mut terminal = Terminal::run(&folder, 80, &[], &arguments);
        terminal.wait("/help lists what can be typed\r\n");
        terminal.wait("> ");
        terminal.press("/stats\r");
        terminal.wait("nothing has been answered yet\r\n");
        terminal.wait("> ");
        terminal.press("hello\r");
        terminal.wait("hello");
        // It has begun to answer, and would go on for long.
        let start = Instant::now();
        while terminal.seen.lock().unwrap().len() < terminal.read + 40 {
            assert!(start.elapsed() < PATIENCE, "there is no answer");
            std::thread::sleep(Duration::from_millis(5));
        }
        terminal.press("\u{3}");
        let answer = terminal.wait("(stopped)\r\n");
        assert!(answer.len() > 40 && !answer.contains("error"), "{answer}");
        terminal.wait("> ");
        terminal.press("/stats\r");
        let stats = terminal.wait(" at the most\r\n");
        assert!(stats.contains("\nprompt  ") && stats.contains("\nanswer  "), "{stats}");
        assert!(!stats.contains("PyTorchObserver") && stats.lines().all(|line| line.len() <= 80), "{stats}");
        terminal.wait("> ");
        terminal.resize(60);
        terminal.press("/nothing\r");
        terminal.wait("there is no /nothing; /help lists what there is\r\n");
        terminal.wait("> ");
        terminal.press("/help\r");
        let help = terminal.wait("goes on in the next one\r\n");
        assert!(help.contains("/regenerate") && help.lines().all(|line| line.len() <= 80), "{help}");
        terminal.wait("> ");
        // The interrupt key alone leaves nothing, and ends nothing; the end of input does.
        terminal.press("\u{3}");
        terminal.wait("> ");
        terminal.press("\u{4}");
        let (code, rest) = terminal.end();
        assert_eq!(code, 0, "{}", plain(&rest));
        let history = std::fs::read_to_string(folder.path("home/chat-history")).unwrap();
        assert!(history.contains("hello") && history.contains("/help"), "{history}");
    }

    pub(super) fn list() {
        let folder = Folder::new();
        for columns in [80, 60] {
            let (code, shown) = Terminal::run(&folder, columns, &[], &["list"]).end();
            let shown = plain(&shown);
            // Where models lie is a path, which is never cut.
            let mut lines = shown.lines().filter(|line| !line.starts_with('/'));
            assert!(
                code == 0 && lines.all(|line| line.chars().count() <= columns.into()),
                "{columns}:\n{shown}"
            );
            assert!(shown.contains("smollm2-135m") && shown.contains("default: "), "{columns}:\n{shown}");
        }
    }

    pub(super) fn colours() {
        let folder = Folder::new();
        let arguments = ["inspect", "./none.pte"];
        let shown = |variables: &[(&str, &str)]| {
            let (code, bytes) = Terminal::run(&folder, 80, variables, &arguments).end();
            assert_eq!(code, 1);
            String::from_utf8(bytes).unwrap()
        };
        assert!(shown(&[]).starts_with("\u{1b}[1;31merror:\u{1b}[0m "), "{:?}", shown(&[]));
        for plain in [("NO_COLOR", "1"), ("TERM", "dumb")] {
            assert!(shown(&[plain]).starts_with("error: "), "{:?}", shown(&[plain]));
        }
    }

    pub(super) fn escapes() {
        let folder = Folder::new();
        let model = folder.write("model.pte", &sample("llama_f32", "model.pte"));
        let tokenizer = std::fs::read_to_string(character_tokenizer(&folder)).unwrap();
        let escaped = folder.write("escaped.json", tokenizer.replace("\"h\":7", "\"\u{11b}\":7").as_bytes());
        let common = ["run", "-q", "--model", &model, "--tokenizer", &escaped, "--temperature", "0"];
        let arguments = [&common[..], &["--max-new", "3", "drQiDlf8"]].concat();
        let (code, shown) = Terminal::run(&folder, 80, &[], &arguments).end();
        let shown = String::from_utf8(shown).unwrap();
        assert!(code == 0 && shown.contains("\\u{1b}VV"), "{shown:?}");
    }
}
