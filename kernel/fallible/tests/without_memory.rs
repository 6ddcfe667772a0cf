//! Reference counts when the allocator promises nothing. The promise is one for the process, so
//! this is a program of its own.

use std::cell::Cell;

use cops_fallible::{set_promise, try_arc, try_arc_with};

/// Counts drops.
struct Counted<'a>(&'a Cell<u32>);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

#[test]
fn without_memory_a_value_is_dropped_or_not_made() {
    set_promise(|_| false);
    let drops = Cell::new(0);
    assert!(try_arc(Counted(&drops)).is_err());
    assert_eq!(drops.get(), 1, "a value that was there is dropped");
    let mut made = 0;
    let result = try_arc_with(|| {
        made += 1;
        Counted(&drops)
    });
    assert!(result.is_err());
    assert_eq!((made, drops.get()), (0, 1), "a value is made in vain");
}
