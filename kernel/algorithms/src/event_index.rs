//! Which of a virtio queue's indices calls for a notification (virtio 1.2, section 2.7.10).
//!
//! The reader of a ring publishes an index: it wants to be notified when the entry with that index
//! is written, and of no other one. The writer notifies if its last step has passed the index. All
//! indices count entries modulo 2^16.

/// Whether the writer, by adding the entries from `before` to `after`, has written entry `event`.
#[must_use]
pub fn is_passed(event: u16, before: u16, after: u16) -> bool {
    after.wrapping_sub(event).wrapping_sub(1) < after.wrapping_sub(before)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against the definition: `event` is one of the entries that were added.
    #[test]
    fn an_entry_is_passed_once() {
        for before in [0u16, 1, 77, u16::MAX - 2, u16::MAX] {
            for added in [0u16, 1, 2, 5, 256] {
                for distance in -300i32..300 {
                    let event = before.wrapping_add(distance as u16);
                    let expected = (0..i32::from(added)).contains(&distance);
                    let after = before.wrapping_add(added);
                    assert_eq!(is_passed(event, before, after), expected, "{distance} {added}");
                }
            }
        }
    }
}
