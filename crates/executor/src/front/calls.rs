//! The calls to the core, one function for each line of `for_each_core_function`.

use crate::core::Executor;

macro_rules! define_calls {
    ($($([$unsafety:tt])? $export:ident = $method:ident($($name:ident: $type:ty),* $(,)?) -> $result:ty;)*) => {
        $(
            #[cfg(not(feature = "image"))]
            #[inline(always)]
            #[allow(unsafe_code, clippy::missing_safety_doc, clippy::undocumented_unsafe_blocks)]
            pub $($unsafety)? fn $method(executor: &Executor $(, $name: $type)*) -> $result {
                // The same contract as the method's.
                $($unsafety)? { executor.$method($($name),*) }
            }

            #[cfg(feature = "image")]
            #[inline(always)]
            #[allow(unsafe_code, clippy::missing_safety_doc, clippy::undocumented_unsafe_blocks)]
            pub $($unsafety)? fn $method(executor: &Executor $(, $name: $type)*) -> $result {
                // The same contract as the method's, which is what the table's entry leads to.
                $($unsafety)? { (crate::image::installed().$method)(executor $(, $name)*) }
            }
        )*
    };
}

crate::core::for_each_core_function!(define_calls);
