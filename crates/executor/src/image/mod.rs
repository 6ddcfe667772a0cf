//! The core in a shared image (the vDSO): finding its exports and calling through them.
//!
//! The table lies in the caller's memory, made once from the image's dynamic symbols and installed
//! before the first executor is started.
#![allow(unsafe_code)]

use ::core::fmt;
use ::core::ptr;
use ::core::sync::atomic::{AtomicPtr, Ordering};

mod elf;
mod observe;

use self::elf::DynamicSymbols;
use crate::core::published::load_published;
use crate::core::{Executor, INTERFACE_VERSION};

pub use self::observe::Observer;

/// Why an image cannot be used.
///
/// ```
/// use cops_executor::image::{CoreTable, ImageError};
/// // SAFETY: there is nothing to be found here.
/// let table = unsafe { CoreTable::resolve(|_name| None) };
/// assert_eq!(table.err(), Some(ImageError::Missing("cops_interface_version")));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ImageError {
    /// It is no ELF image of the form that the link script makes.
    Malformed,
    /// It does not export this function.
    Missing(&'static str),
    /// It was built from another version of this crate.
    WrongVersion,
}

macro_rules! define_table {
    ($($([$unsafety:tt])? $export:ident = $method:ident($($name:ident: $type:ty),* $(,)?) -> $result:ty;)*) => {
        /// Pointers to all functions of the core.
        ///
        /// ```
        /// use cops_executor::core::{Executor as Core, INTERFACE_VERSION};
        /// use cops_executor::image::{CoreTable, install};
        /// # extern "C" fn version() -> u64 { INTERFACE_VERSION }
        /// # macro_rules! define_exports {
        /// #     ($($([$unsafety:tt])? $export:ident = $method:ident($($name:ident: $type:ty),* $(,)?) -> $result:ty;)*) => {
        /// #         $($($unsafety)? extern "C" fn $export(executor: &Core $(, $name: $type)*) -> $result {
        /// #             $($unsafety)? { executor.$method($($name),*) }
        /// #         })*
        /// #         fn find(name: &str) -> Option<*const ()> {
        /// #             match name {
        /// #                 "cops_interface_version" => Some(version as *const ()),
        /// #                 $(stringify!($export) => Some($export as *const ()),)*
        /// #                 _ => None,
        /// #             }
        /// #         }
        /// #     };
        /// # }
        /// # cops_executor::for_each_core_function!(define_exports);
        /// use std::sync::OnceLock;
        /// static TABLE: OnceLock<CoreTable> = OnceLock::new();
        /// // `find` looks names up among functions of this program, as if it were an image.
        /// // SAFETY: they are what their names say.
        /// let table = unsafe { CoreTable::resolve(find) }?;
        /// install(TABLE.get_or_init(|| table));
        ///
        /// # use cops_executor::{Executor, Priority};
        /// static EXECUTOR: Executor = Executor::new();
        /// EXECUTOR.start_on_host(1)?;
        /// let sum = EXECUTOR.spawn_join(async { 2 + 2 }, Priority::DEFAULT)?;
        /// assert_eq!(EXECUTOR.block_on(sum)?, 4);
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        #[derive(Clone, Copy)]
        pub struct CoreTable {
            $(pub(crate) $method: $($unsafety)? extern "C" fn(&Executor $(, $name: $type)*) -> $result,)*
        }

        impl CoreTable {
            /// Makes a table of what `find` says are the addresses of the exports.
            ///
            /// # Safety
            ///
            /// An address that `find` returns for a name is that of the function which the vDSO
            /// crate exports by this name, and executable for ever.
            ///
            /// # Errors
            ///
            /// [`ImageError::Missing`], [`ImageError::WrongVersion`].
            ///
            /// ```
            /// use cops_executor::core::{Executor as Core, INTERFACE_VERSION};
            /// use cops_executor::image::CoreTable;
            /// # extern "C" fn version() -> u64 { INTERFACE_VERSION }
            /// # macro_rules! define_exports {
            /// #     ($($([$unsafety:tt])? $export:ident = $method:ident($($name:ident: $type:ty),* $(,)?) -> $result:ty;)*) => {
            /// #         $($($unsafety)? extern "C" fn $export(executor: &Core $(, $name: $type)*) -> $result {
            /// #             $($unsafety)? { executor.$method($($name),*) }
            /// #         })*
            /// #         fn find(name: &str) -> Option<*const ()> {
            /// #             match name {
            /// #                 "cops_interface_version" => Some(version as *const ()),
            /// #                 $(stringify!($export) => Some($export as *const ()),)*
            /// #                 _ => None,
            /// #             }
            /// #         }
            /// #     };
            /// # }
            /// # cops_executor::for_each_core_function!(define_exports);
            /// // SAFETY: `find` knows functions of this program by their names.
            /// assert!(unsafe { CoreTable::resolve(find) }.is_ok());
            /// // SAFETY: the names are those of functions of this program; one is omitted.
            /// let incomplete = unsafe { CoreTable::resolve(|name| if name == "cops_run" { None } else { find(name) }) };
            /// assert!(incomplete.is_err());
            /// ```
            pub unsafe fn resolve(
                mut find: impl FnMut(&str) -> Option<*const ()>,
            ) -> Result<CoreTable, ImageError> {
                let version = find("cops_interface_version")
                    .ok_or(ImageError::Missing("cops_interface_version"))?;
                // SAFETY: by contract it is this function, and the function's type never changes.
                let version = unsafe {
                    ::core::mem::transmute::<*const (), extern "C" fn() -> u64>(version)
                };
                if version() != INTERFACE_VERSION {
                    return Err(ImageError::WrongVersion);
                }
                $(
                    let $method = find(stringify!($export))
                        .ok_or(ImageError::Missing(stringify!($export)))?;
                )*
                Ok(CoreTable {
                    $(
                        // SAFETY: by contract the export of this name, and by its version of this
                        // type: the crate makes both from one list.
                        $method: unsafe {
                            ::core::mem::transmute::<
                                *const (),
                                $($unsafety)? extern "C" fn(&Executor $(, $name: $type)*) -> $result,
                            >($method)
                        },
                    )*
                })
            }
        }
    };
}

crate::core::for_each_core_function!(define_table);

impl CoreTable {
    /// Makes the table from an image in memory, as the linker script of the vDSO crate lays it out.
    ///
    /// # Safety
    ///
    /// `image` points to the whole image of the vDSO crate, mapped readable and executable for
    /// ever.
    ///
    /// # Errors
    ///
    /// See [`ImageError`].
    ///
    /// ```
    /// use cops_executor::image::{CoreTable, ImageError};
    /// static NO_IMAGE: [u64; 64] = [0; 64];
    /// // SAFETY: it begins unlike an image, so nothing else is read.
    /// let table = unsafe { CoreTable::from_image(NO_IMAGE.as_ptr().cast()) };
    /// assert_eq!(table.err(), Some(ImageError::Malformed));
    /// ```
    pub unsafe fn from_image(image: *const u8) -> Result<CoreTable, ImageError> {
        // SAFETY: this function has the same contract for `image`.
        let symbols = unsafe { DynamicSymbols::of(image) }.ok_or(ImageError::Malformed)?;
        // SAFETY: the caller's promise; what is found lies within the image.
        unsafe { CoreTable::resolve(|name| Some(image.wrapping_add(symbols.find(name)?).cast())) }
    }
}

static INSTALLED: AtomicPtr<CoreTable> = AtomicPtr::new(ptr::null_mut());

/// Installs the table for all calls of this program. Must come before the first executor is
/// started; a later call replaces the table.
///
/// Not in interrupt handlers of a program that uses its executor already. Calls panic while none is
/// installed.
///
/// ```
/// use cops_executor::core::{Executor as Core, INTERFACE_VERSION};
/// use cops_executor::image::{CoreTable, install};
/// # extern "C" fn version() -> u64 { INTERFACE_VERSION }
/// # macro_rules! define_exports {
/// #     ($($([$unsafety:tt])? $export:ident = $method:ident($($name:ident: $type:ty),* $(,)?) -> $result:ty;)*) => {
/// #         $($($unsafety)? extern "C" fn $export(executor: &Core $(, $name: $type)*) -> $result {
/// #             $($unsafety)? { executor.$method($($name),*) }
/// #         })*
/// #         fn find(name: &str) -> Option<*const ()> {
/// #             match name {
/// #                 "cops_interface_version" => Some(version as *const ()),
/// #                 $(stringify!($export) => Some($export as *const ()),)*
/// #                 _ => None,
/// #             }
/// #         }
/// #     };
/// # }
/// # cops_executor::for_each_core_function!(define_exports);
/// // SAFETY: `find` knows functions of this program by their names.
/// let table = Box::leak(Box::new(unsafe { CoreTable::resolve(find) }.unwrap()));
/// install(table);
/// ```
pub fn install(table: &'static CoreTable) {
    INSTALLED.store(ptr::from_ref(table).cast_mut(), Ordering::Release);
}

/// The installed table.
///
/// # Panics
///
/// If none is.
#[inline(always)]
pub(crate) fn installed() -> &'static CoreTable {
    // SAFETY: the pointer is null, or `install` stored it from a `&'static` reference.
    match unsafe { load_published(&INSTALLED).as_ref() } {
        Some(table) => table,
        None => not_installed(),
    }
}

#[cold]
fn not_installed() -> ! {
    panic!("cops_executor::image::install must be called before an executor is used");
}

impl fmt::Display for ImageError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ImageError::Malformed => {
                formatter.write_str("the scheduler image is not a well-formed ELF image")
            }
            ImageError::Missing(name) => {
                write!(formatter, "the scheduler image does not export {name}")
            }
            ImageError::WrongVersion => {
                formatter.write_str("the scheduler image is of another version")
            }
        }
    }
}

impl ::core::error::Error for ImageError {}
