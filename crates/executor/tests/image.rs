//! The front over a table, as in a process. The "image" is this program: the table is made of its
//! functions.
#![allow(unsafe_code)]

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use cops_executor::core::{Executor as Core, INTERFACE_VERSION};
use cops_executor::image::{CoreTable, ImageError, install};
use cops_executor::*;

/// Calls that went through the table.
static CALLS: AtomicU64 = AtomicU64::new(0);

extern "C" fn cops_interface_version() -> u64 {
    INTERFACE_VERSION
}

extern "C" fn wrong_version() -> u64 {
    INTERFACE_VERSION + 1
}

macro_rules! define_exports {
    ($($([$unsafety:tt])? $export:ident = $method:ident($($name:ident: $type:ty),* $(,)?) -> $result:ty;)*) => {
        $(
            #[allow(clippy::undocumented_unsafe_blocks)]
            $($unsafety)? extern "C" fn $export(executor: &Core $(, $name: $type)*) -> $result {
                CALLS.fetch_add(1, Ordering::Relaxed);
                $($unsafety)? { executor.$method($($name),*) }
            }
        )*

        fn find(name: &str) -> Option<*const ()> {
            match name {
                "cops_interface_version" => Some(cops_interface_version as *const ()),
                $(stringify!($export) => Some($export as *const ()),)*
                _ => None,
            }
        }
    };
}

cops_executor::for_each_core_function!(define_exports);

#[test]
fn a_table_of_another_version_or_with_a_gap_is_refused() {
    let other = |name: &str| match name {
        "cops_interface_version" => Some(wrong_version as *const ()),
        name => find(name),
    };
    let gap = |name: &str| if name == "cops_wake" { None } else { find(name) };
    // SAFETY: what is found is what it is called; the version function's type is right.
    unsafe {
        assert_eq!(CoreTable::resolve(other).err(), Some(ImageError::WrongVersion));
        assert_eq!(CoreTable::resolve(gap).err(), Some(ImageError::Missing("cops_wake")));
        assert_eq!(
            CoreTable::resolve(|_| None).err(),
            Some(ImageError::Missing("cops_interface_version"))
        );
    }
}

#[test]
fn coroutines_run_through_the_table() {
    static TABLE: OnceLock<CoreTable> = OnceLock::new();
    static EXECUTOR: Executor = Executor::with_number(1);
    // SAFETY: `find` returns what each name stands for.
    install(TABLE.get_or_init(|| unsafe { CoreTable::resolve(find) }.unwrap()));
    EXECUTOR.start_on_host(2).unwrap();
    let before = CALLS.load(Ordering::Relaxed);
    let sleeper = EXECUTOR.spawn_join(std::future::pending::<()>(), Priority::DEFAULT).unwrap();
    let worker = EXECUTOR.spawn_join(
        async move {
            yield_now().await;
            set_priority(sleeper.id(), Priority::MOST_URGENT);
            sleeper.abort();
            sleeper.await
        },
        Priority::DEFAULT,
    );
    assert_eq!(EXECUTOR.block_on(worker.unwrap()), Ok(Err(JoinError::Cancelled)));
    assert_eq!(EXECUTOR.live_count(), 0);
    assert!(CALLS.load(Ordering::Relaxed) > before);
}
