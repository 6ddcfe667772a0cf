//! Why a coroutine has no output.
#![allow(unsafe_code)]

#[cfg(feature = "std")]
use ::core::any::Any;
use ::core::fmt;
#[cfg(feature = "std")]
use std::boxed::Box;

/// Why a coroutine has no output: it was cancelled, or it panicked.
///
/// The payload of the panic is kept, as by `std::thread::JoinHandle`:
/// [`into_panic`](JoinError::into_panic). Two errors are equal if they are of the same kind:
/// payloads cannot be compared.
///
/// ```
/// # use cops_executor::{Executor, JoinError, Priority};
/// # static EXECUTOR: Executor = Executor::new();
/// # EXECUTOR.start_on_host(1)?;
/// let panics = EXECUTOR.spawn_join(async { panic!("for the example") }, Priority::DEFAULT)?;
/// let result: Result<(), JoinError> = EXECUTOR.block_on(panics);
/// let error = result.unwrap_err();
/// assert!(error.is_panic() && !error.is_cancelled());
/// assert_eq!(error.to_string(), "the coroutine panicked: for the example");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(PartialEq, Eq, Debug)]
pub enum JoinError {
    /// It was cancelled.
    Cancelled,
    /// It panicked (with `std`; elsewhere a panic does not return).
    Panicked(Payload),
}

/// What a coroutine panicked with; see [`JoinError::into_panic`]. All are equal.
///
/// ```
/// # use cops_executor::{Executor, JoinError, Priority};
/// # static EXECUTOR: Executor = Executor::new();
/// # EXECUTOR.start_on_host(1)?;
/// let panics = EXECUTOR.spawn_join(async { panic!("{}", 6 * 7) }, Priority::DEFAULT)?;
/// match EXECUTOR.block_on(panics) {
///     Err(JoinError::Panicked(payload)) => assert_eq!(payload.message(), Some("42")),
///     Err(JoinError::Cancelled) | Ok(()) => unreachable!(),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Payload {
    #[cfg(feature = "std")]
    any: Box<dyn Any + Send>,
    /// Without `std` there are none.
    #[cfg(not(feature = "std"))]
    none: ::core::convert::Infallible,
}

// SAFETY: by reference it can only be asked for its text: `message` compares type ids, and reads a
// `&str` or a `String`, which are `Sync`. The payload itself can be had by value only, and is
// `Send`.
unsafe impl Sync for Payload {}

impl Payload {
    /// The text, if it was a panic with one, as of `panic!`.
    ///
    /// ```
    /// # use cops_executor::{Executor, JoinError, Priority};
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// let number = EXECUTOR.spawn_join(async { std::panic::panic_any(42) }, Priority::DEFAULT)?;
    /// let Err(JoinError::Panicked(payload)) = EXECUTOR.block_on(number) else { unreachable!() };
    /// assert_eq!(payload.message(), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn message(&self) -> Option<&str> {
        #[cfg(feature = "std")]
        {
            let string =
                self.any.downcast_ref::<std::string::String>().map(|string| string.as_str());
            string.or_else(|| self.any.downcast_ref::<&'static str>().copied())
        }
        #[cfg(not(feature = "std"))]
        match self.none {}
    }
}

impl PartialEq for Payload {
    fn eq(&self, _: &Payload) -> bool {
        true
    }
}

impl Eq for Payload {}

impl fmt::Debug for Payload {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.message() {
            Some(message) => fmt::Debug::fmt(message, formatter),
            None => formatter.write_str("Any { .. }"),
        }
    }
}

impl JoinError {
    #[cfg(feature = "std")]
    pub(crate) fn panicked(any: Box<dyn Any + Send>) -> JoinError {
        JoinError::Panicked(Payload { any })
    }

    /// Whether it was cancelled.
    ///
    /// ```
    /// # use cops_executor::JoinError;
    /// assert!(JoinError::Cancelled.is_cancelled());
    /// ```
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        matches!(self, JoinError::Cancelled)
    }

    /// Whether it panicked.
    ///
    /// ```
    /// # use cops_executor::JoinError;
    /// assert!(!JoinError::Cancelled.is_panic());
    /// ```
    #[must_use]
    pub fn is_panic(&self) -> bool {
        matches!(self, JoinError::Panicked(_))
    }

    /// What it panicked with, to be looked into or passed on by `std::panic::resume_unwind`.
    ///
    /// ```
    /// # use cops_executor::{Executor, Priority};
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// let panics = EXECUTOR.spawn_join(async { std::panic::panic_any(42_u32) }, Priority::DEFAULT)?;
    /// let payload = EXECUTOR.block_on(panics).unwrap_err().into_panic();
    /// assert_eq!(*payload.downcast::<u32>().unwrap(), 42);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    ///
    /// If it did not panic: see [`is_panic`](JoinError::is_panic),
    /// [`try_into_panic`](JoinError::try_into_panic).
    #[cfg(feature = "std")]
    #[must_use]
    pub fn into_panic(self) -> Box<dyn Any + Send + 'static> {
        self.try_into_panic().expect("the coroutine did not panic")
    }

    /// What it panicked with, or the error if it did not.
    ///
    /// ```
    /// # use cops_executor::JoinError;
    /// assert_eq!(JoinError::Cancelled.try_into_panic().unwrap_err(), JoinError::Cancelled);
    /// ```
    ///
    /// # Errors
    ///
    /// The error itself, if the coroutine did not panic.
    #[cfg(feature = "std")]
    pub fn try_into_panic(self) -> Result<Box<dyn Any + Send + 'static>, JoinError> {
        match self {
            JoinError::Panicked(payload) => Ok(payload.any),
            other => Err(other),
        }
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JoinError::Cancelled => formatter.write_str("the coroutine was cancelled"),
            JoinError::Panicked(payload) => match payload.message() {
                Some(message) => write!(formatter, "the coroutine panicked: {message}"),
                None => formatter.write_str("the coroutine panicked"),
            },
        }
    }
}

impl ::core::error::Error for JoinError {}
