//! From the class in a client's messages to the priority of its coroutines.

use cops::task::Priority;

/// Accepting, and a connection that has not said its class: little work, once for each connection.
pub const UNKNOWN: Priority = Priority::MOST_URGENT;

/// Class 0 is the most urgent. Classes have a level each from 1 on; those above 62 share the last.
pub fn priority(class: u8) -> Priority {
    Priority::saturating(1 + u32::from(class))
}
