//! The test harness.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use core::fmt;
use core::future::Future;
use core::ops::Deref;
use core::pin::Pin;

use cops::process::{self, Child, ExitCode, ExitStatus};
use cops::task::{self, Priority, yield_now};
use cops::time::{Duration, timeout};
use cops::{abi::Errno, println};

/// This program.
pub const PROGRAM: &str = "/bin/usertests";
/// The exit code of a test that has printed its own failure.
pub const REPORTED: u8 = 77;
/// A limit for events that should never be missing: far longer than anything here takes on a
/// heavily loaded machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Whether time is a count of instructions, so that a test may judge durations. Then the machine
/// has one hart (`./cops test` ensures it). With several harts, time is the host's, and advances
/// while the host runs something else.
pub fn time_is_counted() -> bool {
    harts() == 1
}

/// How many harts the machine has.
pub fn harts() -> usize {
    crate::raw::system_page().harts.load(core::sync::atomic::Ordering::Relaxed) as usize
}

/// The priority of this level; `LEAST_URGENT` if there is none.
pub fn level(level: u8) -> Priority {
    Priority::saturating(level.into())
}

/// The calling coroutine has this level from now on, and has yielded since.
pub async fn become_level(at: u8) {
    if let Some(id) = task::current() {
        task::set_priority(id, level(at));
    }
    yield_now().await;
}

/// Lets others run until `done` returns true, checking every few milliseconds.
///
/// # Errors
/// If that does not happen within [`PATIENCE`].
pub async fn until(
    what: &str,
    mut done: impl FnMut() -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let waiting = async {
        while !done()? {
            cops::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    };
    soon(what, waiting).await?
}

/// A test by name.
pub struct Test {
    pub name: &'static str,
    pub run: fn() -> Pin<Box<dyn Future<Output = Outcome> + Send>>,
}

/// `tests! { group: name, name }` defines `TESTS`, with the asynchronous functions of these names.
#[macro_export]
macro_rules! tests {
    ($group:ident: $($name:ident),+ $(,)?) => {
        pub const TESTS: &[$crate::harness::Test] = &[$($crate::harness::Test {
            name: concat!(stringify!($group), "::", stringify!($name)),
            run: || ::alloc::boxed::Box::pin($name()),
        }),+];
    };
}

/// The result of a test.
pub type Outcome = Result<(), Failure>;

/// The reason why a test failed.
#[derive(Debug)]
pub struct Failure(pub String);

// `Failure` does not implement `Error`; otherwise this implementation would not be allowed.
impl<E: core::error::Error> From<E> for Failure {
    #[track_caller]
    fn from(error: E) -> Self {
        let place = core::panic::Location::caller();
        Failure(alloc::format!("{error} ({}:{})", place.file(), place.line()))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Fails the test unless the condition holds.
#[macro_export]
macro_rules! check {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err($crate::harness::Failure(::alloc::format!($($message)+)));
        }
    };
}

/// Fails the test unless both are equal.
#[macro_export]
macro_rules! check_equal {
    ($left:expr, $right:expr, $($message:tt)+) => {
        match (&$left, &$right) {
            (left, right) => $crate::check!(
                *left == *right,
                "{}: {left:?} instead of {right:?}", ::core::format_args!($($message)+)
            ),
        }
    };
}

/// Runs one test in this process.
pub async fn run_here(test: Option<&Test>, name: &str) -> ExitCode {
    let outcome = match test {
        Some(test) => (test.run)().await,
        None => Err(Failure("there is no such test".to_string())),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            println!("not ok {name}: {failure}");
            ExitCode(REPORTED)
        }
    }
}

/// Fails the test if `future` takes longer than [`PATIENCE`].
pub async fn soon<F: Future>(what: &str, future: F) -> Result<F::Output, Failure> {
    timeout(PATIENCE, future).await.map_err(|_| Failure(alloc::format!("{what}: nothing happened")))
}

/// Starts this program as another process of a test.
pub fn start(arguments: &[&str]) -> Result<Child, Failure> {
    Ok(process::spawn(PROGRAM, arguments)?)
}

/// A child that is killed when it is dropped, so that a failed test leaves no process running.
pub struct Tied(pub Child);

/// Starts this program as another process of a test that does not end by itself.
pub fn start_tied(arguments: &[&str]) -> Result<Tied, Failure> {
    start(arguments).map(Tied)
}

impl Tied {
    /// Kills it and waits for its end.
    pub async fn end(mut self) -> Outcome {
        self.0.kill()?;
        soon("the end of a child that was killed", self.0.wait()).await??;
        Ok(())
    }
}

impl Deref for Tied {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl Drop for Tied {
    fn drop(&mut self) {
        // Fails if it has already been waited for.
        let _ = self.0.kill();
    }
}

/// Starts this program as another process of a test and waits for its end.
pub async fn run(arguments: &[&str]) -> Result<ExitStatus, Failure> {
    Ok(soon("the end of a process", start(arguments)?.wait()).await??)
}

/// The kernel's error in an I/O error.
pub fn errno(error: cops::io::Error) -> Option<Errno> {
    match error {
        cops::io::Error::Kernel(errno) => Some(errno),
        _ => None,
    }
}
