//! Messages that are sent together: each is whole, in order, or not there.

use matrix_message::{Batch, as_bytes};
use proptest::prelude::*;

proptest! {
    #[test]
    fn what_was_appended_is_there_and_nothing_else(
        messages in prop::collection::vec(prop::collection::vec(any::<u64>(), 0..9), 0..9),
    ) {
        let mut batch = Batch::<16>::new();
        let mut expected = Vec::new();
        for message in messages {
            let has_room = expected.len() + message.len() <= 16;
            prop_assert_eq!(batch.append(&message), has_room);
            if has_room {
                expected.extend(message);
            }
            prop_assert_eq!(batch.bytes(), as_bytes(&expected));
        }
    }
}

#[test]
fn exactly_full_is_room() {
    let mut batch = Batch::<8>::default();
    assert!(batch.bytes().is_empty());
    assert!(!batch.append(&[1; 9]));
    assert!(batch.append(&[1; 4]) && batch.append(&[2; 4]) && !batch.append(&[3]));
    assert_eq!(batch.bytes(), as_bytes(&[1, 1, 1, 1, 2, 2, 2, 2]));
}
