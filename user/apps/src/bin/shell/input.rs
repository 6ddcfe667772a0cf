//! The shell's input.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::future::Future;
use core::pin::{Pin, pin};

use command_line::edit::{Editor, Event};
use cops::io::{self, Read, stdin};
use cops::{fs, print};
use futures_util::future::{Either, select};

use crate::commands;

const PROMPT: &str = "$ ";
const CONTROL_C: u8 = 3;
/// Where commands are completed.
const PROGRAMS: &str = "/bin";

/// Reads lines.
#[derive(Default)]
pub struct Input {
    editor: Editor,
    /// Keys that were read while the shell waited for something else.
    kept: VecDeque<u8>,
}

impl Input {
    /// The next line that a person types; `None` at the end of the input.
    pub async fn edited_line(&mut self) -> io::Result<Option<String>> {
        print!("{PROMPT}");
        loop {
            let Some(byte) = self.byte().await? else {
                return Ok(None);
            };
            let mut show = String::new();
            let event = self.editor.key(byte, PROMPT, &mut show);
            if event == Event::Complete {
                let (word, is_command) = self.editor.word();
                let ways = ways(word, is_command);
                self.editor.complete(&ways, PROMPT, &mut show);
            }
            match event {
                Event::Interrupted => show.push_str(PROMPT),
                Event::End => show.push('\n'),
                _ => {}
            }
            print!("{show}");
            match event {
                Event::Line(line) => return Ok(Some(line)),
                Event::End => return Ok(None),
                _ => {}
            }
        }
    }

    /// The lines that were typed.
    pub fn history(&self) -> &[String] {
        self.editor.history()
    }

    /// The next line of an input that is no terminal; `None` at its end.
    pub async fn plain_line(&mut self) -> io::Result<Option<String>> {
        let mut line = Vec::new();
        loop {
            match self.byte().await? {
                Some(b'\n') => break,
                Some(byte) => line.push(byte),
                None if line.is_empty() => return Ok(None),
                None => break,
            }
        }
        Ok(Some(String::from_utf8_lossy(&line).into_owned()))
    }

    /// A byte at a time: what follows a line may be for the program that the line starts.
    async fn byte(&mut self) -> io::Result<Option<u8>> {
        if let Some(byte) = self.kept.pop_front() {
            return Ok(Some(byte));
        }
        let mut byte = [0];
        let count = stdin().read(&mut byte).await?;
        Ok((count > 0).then_some(byte[0]))
    }

    /// Waits for `end`, or until Ctrl-C or Enter is typed: then returns `None`. Other keys are kept
    /// for the next line.
    pub async fn wait_or_key<T>(
        &mut self,
        mut end: Pin<&mut impl Future<Output = T>>,
    ) -> Option<T> {
        loop {
            let mut byte = [0];
            let mut input = stdin();
            let count = match select(end.as_mut(), pin!(input.read(&mut byte))).await {
                Either::Left((output, _)) => return Some(output),
                Either::Right((count, _)) => count.unwrap_or(0),
            };
            match (count, byte) {
                (0, _) => return Some(end.await),
                (_, [CONTROL_C | b'\r' | b'\n']) => return None,
                (_, [byte]) => self.kept.push_back(byte),
            }
        }
    }
}

/// How a word may go on: as a command, or as a path.
fn ways(word: &str, is_command: bool) -> Vec<String> {
    let (directory, begin) = match word.rfind('/') {
        Some(place) => word.split_at(place + 1),
        None => ("", word),
    };
    let is_name = is_command && directory.is_empty();
    let place = match directory {
        "" if is_name => PROGRAMS,
        "" => ".",
        directory => directory,
    };
    let mut ways: Vec<String> = Vec::new();
    if is_name {
        let own = commands::NAMES.iter().filter(|name| name.starts_with(begin));
        ways.extend(own.map(|name| format!("{name} ")));
    }
    for entry in fs::read_directory(place).unwrap_or_default() {
        if entry.name.starts_with(begin) {
            let after = if entry.kind == fs::Kind::Directory { '/' } else { ' ' };
            ways.push(format!("{directory}{}{after}", entry.name));
        }
    }
    ways.sort();
    ways.dedup();
    ways
}
