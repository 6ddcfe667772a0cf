//! The priority of a connection's coroutines, from the class in the client's messages.

use cops::task::Priority;

/// For accepting, and for connections of unknown class: little work, once per connection.
pub const UNKNOWN: Priority = Priority::MOST_URGENT;

/// Class 0 is the most urgent. Classes have one level each, beginning with 1; classes above 62
/// share the last one.
pub fn priority(class: u8) -> Priority {
    Priority::saturating(1 + u32::from(class))
}
