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

/// The writer of a ring, and what it has notified of.
#[derive(Debug, Default)]
pub struct Writer {
    /// The number of entries at the last notification.
    notified: u16,
}

impl Writer {
    /// There are `written` entries now, of which the reader, which has room for `size`, wants to be
    /// notified of entry `event`. Returns whether it is to be notified now.
    ///
    /// Looks at all entries since the last notification, not only at the new ones: if the reader's
    /// request was not visible yet when its entry was written, the next entry makes up for that.
    /// (An emulator can reorder a store and a load although the program has a fence between them.)
    pub fn must_notify(&mut self, event: u16, written: u16, size: u16) -> bool {
        // A request that still counts is one of the entries that the reader can have before it.
        let since = written.wrapping_sub(self.notified).min(size);
        let must = is_passed(event, written.wrapping_sub(since), written);
        if must {
            self.notified = written;
        }
        must
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_notified_once_and_a_missed_request_later() {
        let mut writer = Writer::default();
        assert!(writer.must_notify(0, 1, 256));
        assert!(!writer.must_notify(0, 2, 256), "the reader has not asked again");
        assert!(!writer.must_notify(0, 5, 256));
        assert!(writer.must_notify(5, 6, 256));
        // The request for entry 6 is seen only when entry 8 is written.
        assert!(!writer.must_notify(5, 7, 256));
        assert!(!writer.must_notify(5, 8, 256));
        assert!(writer.must_notify(6, 9, 256));
    }

    /// A reader that is busy for long asks for nothing: its last request does not come round again.
    #[test]
    fn an_old_request_is_never_one_of_new_entries() {
        let mut writer = Writer::default();
        assert!(writer.must_notify(0, 1, 256));
        for written in 2u32..=65_536 {
            assert!(!writer.must_notify(0, written as u16, 256), "{written}");
        }
    }

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
