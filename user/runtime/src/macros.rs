//! The calls that can wait, as macros: synchronous without a coroutine id, a future with one. SPEC
//! 3.9.

/// Performs an operation: synchronously, or as a future for a coroutine.
#[doc(hidden)]
#[macro_export]
macro_rules! perform {
    ($operation:expr) => {
        $crate::call::wait($operation)
    };
    ($operation:expr, $coroutine:expr) => {
        $crate::call::Call::named($operation, $coroutine)
    };
}

/// `read!(fd, buffer)`, `read!(fd, buffer, coroutine id).await`: `Result<usize, Errno>`; 0 at the
/// end. See [`ReadInto`](crate::io::ReadInto).
#[macro_export]
macro_rules! read {
    ($fd:expr, $buffer:expr $(, $coroutine:expr)?) => {
        $crate::perform!($crate::io::ReadInto::new($crate::io::AsFd::as_fd(&$fd), $buffer) $(, $coroutine)?)
    };
}

/// `write!(fd, bytes)`, `write!(fd, bytes, coroutine id).await`: `Result<usize, Errno>`.
/// See [`WriteFrom`](crate::io::WriteFrom).
#[macro_export]
macro_rules! write {
    ($fd:expr, $bytes:expr $(, $coroutine:expr)?) => {
        $crate::perform!($crate::io::WriteFrom::new($crate::io::AsFd::as_fd(&$fd), $bytes) $(, $coroutine)?)
    };
}

/// `accept!(listener)`, `accept!(listener, coroutine id).await`: `Result<Fd, Errno>`.
#[macro_export]
macro_rules! accept {
    ($listener:expr $(, $coroutine:expr)?) => {
        $crate::perform!($crate::net::Accept::new($crate::io::AsFd::as_fd(&$listener)) $(, $coroutine)?)
    };
}

/// `connect!(socket, address)`, `connect!(socket, address, coroutine id).await`: `Result<(),
/// Errno>`.
#[macro_export]
macro_rules! connect {
    ($socket:expr, $address:expr $(, $coroutine:expr)?) => {
        $crate::perform!($crate::net::Connect::new($crate::io::AsFd::as_fd(&$socket), $address) $(, $coroutine)?)
    };
}

/// `sleep!(duration)`, `sleep!(duration, coroutine id).await`: `Result<(), Errno>`.
#[macro_export]
macro_rules! sleep {
    ($duration:expr $(, $coroutine:expr)?) => {
        $crate::perform!($crate::time::Sleep::lasting($duration) $(, $coroutine)?)
    };
}

/// `wait!(process id or None)`, `wait!(process id or None, coroutine id).await`: `Result<(u32,
/// ExitStatus), Errno>`.
#[macro_export]
macro_rules! wait {
    ($pid:expr $(, $coroutine:expr)?) => {
        $crate::perform!($crate::process::Wait::new($pid) $(, $coroutine)?)
    };
}
