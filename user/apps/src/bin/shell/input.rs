//! The shell's input.

use alloc::string::String;
use alloc::vec::Vec;
use core::future::Future;
use core::pin::{Pin, pin};

use cops::io::{self, Read, stdin};
use futures_util::future::{Either, select};

const CONTROL_C: u8 = 3;
/// A read returns at most a line, and a long line in parts of this size. All reads here have this
/// size, because the result of a cancelled read is what the next one returns.
const PART_BYTES: usize = 256;

/// Reads lines. A part of a line may have been read while the shell waited for something else.
#[derive(Default)]
pub struct Input {
    kept: Vec<u8>,
}

/// The reason why a wait has ended.
pub enum Waited<T> {
    /// The future was ready.
    For(T),
    /// Ctrl-C.
    Interrupted,
}

impl Input {
    /// The next line; `None` at the end of the input.
    pub async fn line(&mut self) -> io::Result<Option<String>> {
        loop {
            if let Some(end) = self.kept.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.kept.drain(..=end).collect();
                return Ok(Some(text(&line)));
            }
            let mut bytes = [0; PART_BYTES];
            let count = stdin().read(&mut bytes).await?;
            self.kept.extend_from_slice(bytes.get(..count).unwrap_or_default());
            // Less than a part and no line: it was ended by Ctrl-D, or by the end of the input.
            if count < PART_BYTES && !self.kept.contains(&b'\n') {
                let line = core::mem::take(&mut self.kept);
                return Ok(if line.is_empty() { None } else { Some(text(&line)) });
            }
        }
    }

    /// Stores a line for [`Input::line`].
    pub fn keep(&mut self, line: &str) {
        self.kept.extend_from_slice(line.as_bytes());
    }

    /// Waits for `end` while another process has the console; then the shell can read nothing but
    /// Ctrl-C. If the console comes back before `end` is ready, a line can be read too; it is
    /// stored.
    pub async fn wait_or_interrupt<T>(
        &mut self,
        mut end: Pin<&mut impl Future<Output = T>>,
    ) -> Waited<T> {
        let mut bytes = [0; PART_BYTES];
        let mut input = stdin();
        let count = match select(end.as_mut(), pin!(input.read(&mut bytes))).await {
            Either::Left((output, _)) => return Waited::For(output),
            // Without input there is no Ctrl-C.
            Either::Right((count, _)) => count.unwrap_or(0),
        };
        match bytes.get(..count).unwrap_or_default() {
            [CONTROL_C] => Waited::Interrupted,
            line => {
                self.kept.extend_from_slice(line);
                Waited::For(end.await)
            }
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
