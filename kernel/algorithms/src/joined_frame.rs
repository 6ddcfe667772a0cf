//! A received frame that fills several buffers, copied together.

/// The memory for it, and how much of the frame is there.
#[derive(Debug)]
pub struct JoinedFrame<'a> {
    memory: &'a mut [u8],
    /// `None`: a part did not fit, or is missing.
    length: Option<usize>,
}

impl<'a> JoinedFrame<'a> {
    /// No part is there yet. A frame that is longer than `memory` is not kept.
    #[must_use]
    pub fn new(memory: &'a mut [u8]) -> Self {
        Self { memory, length: Some(0) }
    }

    /// Appends the next part.
    pub fn append(&mut self, part: &[u8]) {
        self.length = self.length.and_then(|length| {
            let end = length + part.len();
            self.memory.get_mut(length..end)?.copy_from_slice(part);
            Some(end)
        });
    }

    /// There is no next part, although the frame has not ended.
    pub fn cut_short(&mut self) {
        self.length = None;
    }

    /// The whole frame; an empty one if it was too long or cut short.
    #[must_use]
    pub fn frame(self) -> &'a mut [u8] {
        &mut self.memory[..self.length.unwrap_or(0)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined<'a>(memory: &'a mut [u8], parts: &[&[u8]]) -> JoinedFrame<'a> {
        let mut joined = JoinedFrame::new(memory);
        parts.iter().for_each(|part| joined.append(part));
        joined
    }

    #[test]
    fn parts_are_in_order() {
        let mut memory = [0; 8];
        assert_eq!(joined(&mut memory, &[b"abc", b"", b"de", b"fgh"]).frame(), b"abcdefgh");
        assert_eq!(joined(&mut memory, &[b"xy"]).frame(), b"xy");
        assert_eq!(joined(&mut memory, &[]).frame(), b"");
    }

    #[test]
    fn a_frame_that_is_too_long_is_empty() {
        let mut memory = [0; 8];
        assert_eq!(joined(&mut memory, &[b"abcd", b"efghi"]).frame(), b"");
        // What would fit after that does not make it whole.
        assert_eq!(joined(&mut memory, &[b"abcd", b"efghi", b"j"]).frame(), b"");
        assert_eq!(joined(&mut [], &[b"a"]).frame(), b"");
    }

    #[test]
    fn a_frame_that_is_cut_short_is_empty() {
        let mut memory = [0; 8];
        let mut joined = joined(&mut memory, &[b"ab"]);
        joined.cut_short();
        joined.append(b"c");
        assert_eq!(joined.frame(), b"");
    }
}
