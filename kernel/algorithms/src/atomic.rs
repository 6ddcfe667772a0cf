//! The atomics of the modules that the model checker explores: the machine's or, with `--cfg
//! cops_loom`, loom's. (With `--cfg loom` the executor, too, would be built for loom, and its
//! structures would not have the sizes that the ABI promises.)

#[cfg(cops_loom)]
pub use self::modelled::AtomicU64;
#[cfg(not(cops_loom))]
pub use core::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering, fence};
#[cfg(cops_loom)]
pub use loom::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering, fence};

#[cfg(cops_loom)]
mod modelled {
    use core::ops::Deref;

    use loom::sync::atomic::{AtomicU64 as Modelled, Ordering};

    /// Loom's, but a store is an update: loom may take a plain store to come before an update that
    /// has not seen it.
    #[derive(Debug)]
    pub struct AtomicU64(Modelled);

    #[allow(missing_docs)]
    impl AtomicU64 {
        pub fn new(value: u64) -> Self {
            Self(Modelled::new(value))
        }

        pub fn store(&self, value: u64, order: Ordering) {
            self.0.swap(value, order);
        }
    }

    impl Deref for AtomicU64 {
        type Target = Modelled;

        fn deref(&self) -> &Modelled {
            &self.0
        }
    }
}

/// A function that is `const`, except for loom: its atomics cannot be constants.
macro_rules! const_unless_loom {
    ($(#[$attribute:meta])* pub fn $name:ident($($argument:ident: $of:ty)?) -> $type:ty $body:block) => {
        $(#[$attribute])*
        #[cfg(not(cops_loom))]
        pub const fn $name($($argument: $of)?) -> $type $body
        $(#[$attribute])*
        #[cfg(cops_loom)]
        pub fn $name($($argument: $of)?) -> $type $body
    };
}
pub(crate) use const_unless_loom;
