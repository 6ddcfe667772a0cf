//! Error numbers. Numbers and meanings follow Linux.

/// Declares the enum with each error's number and text in one place, so that the three cannot
/// disagree.
macro_rules! errors {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $text:literal;)*) => {
        /// Why a call failed. The number is Linux's for riscv64.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(i32)]
        #[non_exhaustive]
        pub enum Errno { $(#[doc = $text] $name = $number,)* }

        impl Errno {
            /// All errors, for tests and tables.
            pub const ALL: &'static [Errno] = &[$(Errno::$name),*];

            /// The error with this number, if the kernel uses it.
            #[must_use]
            pub const fn from_number(number: i32) -> Option<Errno> {
                match number { $($number => Some(Errno::$name),)* _ => None }
            }

            /// A short description for messages.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self { $(Errno::$name => $text,)* }
            }
        }
    };
}

errors! {
    EPERM = 1, "operation not permitted";
    ENOENT = 2, "no such file or directory";
    ESRCH = 3, "no such process";
    EINTR = 4, "interrupted";
    EIO = 5, "input/output error";
    ENXIO = 6, "no such device";
    E2BIG = 7, "argument list too long";
    ENOEXEC = 8, "not an executable this machine can run";
    EBADF = 9, "bad file descriptor";
    ECHILD = 10, "no such child";
    EAGAIN = 11, "try again: a limit is reached for the moment";
    ENOMEM = 12, "out of memory";
    EACCES = 13, "permission denied";
    EFAULT = 14, "bad address";
    EBUSY = 16, "busy";
    EEXIST = 17, "exists";
    EXDEV = 18, "on another file system";
    ENODEV = 19, "no such device";
    ENOTDIR = 20, "not a directory";
    EISDIR = 21, "is a directory";
    EINVAL = 22, "invalid argument";
    ENFILE = 23, "too many open files in the system";
    EMFILE = 24, "too many open files";
    ENOTTY = 25, "not a terminal";
    ETXTBSY = 26, "file is mapped";
    EFBIG = 27, "file too large";
    ENOSPC = 28, "no space left";
    ESPIPE = 29, "cannot seek";
    EROFS = 30, "read-only file system";
    EMLINK = 31, "too many links";
    EPIPE = 32, "broken pipe";
    EDOM = 33, "argument out of range";
    ERANGE = 34, "result too large";
    EDEADLK = 35, "it would wait for itself";
    ENAMETOOLONG = 36, "name too long";
    ENOLCK = 37, "no more file locks";
    ENOSYS = 38, "no such system call";
    ENOTEMPTY = 39, "directory not empty";
    ELOOP = 40, "too many symbolic links";
    EOVERFLOW = 75, "value too large";
    ENOTSOCK = 88, "not a socket";
    EDESTADDRREQ = 89, "destination address required";
    EMSGSIZE = 90, "message too long";
    ENOPROTOOPT = 92, "no such option";
    EPROTONOSUPPORT = 93, "protocol not supported";
    EOPNOTSUPP = 95, "operation not supported";
    EAFNOSUPPORT = 97, "address family not supported";
    EADDRINUSE = 98, "address in use";
    EADDRNOTAVAIL = 99, "address not available";
    ENETDOWN = 100, "network is down";
    ENETUNREACH = 101, "network is unreachable";
    ECONNABORTED = 103, "connection aborted";
    ECONNRESET = 104, "connection reset by peer";
    ENOBUFS = 105, "no buffer space";
    EISCONN = 106, "already connected";
    ENOTCONN = 107, "not connected";
    ETIMEDOUT = 110, "timed out";
    ECONNREFUSED = 111, "connection refused";
    EALREADY = 114, "already in progress";
    EINPROGRESS = 115, "in progress";
    ECANCELED = 125, "cancelled";
    ERESTARTSYS = 512, "to be made again: no program sees this";
}

impl core::fmt::Display for Errno {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.text())
    }
}

impl core::error::Error for Errno {}

/// The result of a call: a non-negative number (for instance a count of bytes), or an error.
pub type CallResult = Result<usize, Errno>;

/// Packs a result into one register: an error is returned as its negated number.
///
/// A success above `isize::MAX` cannot be represented; no call returns one.
#[must_use]
pub const fn encode(result: CallResult) -> isize {
    match result {
        Ok(value) => value as isize,
        Err(error) => -(error as i32 as isize),
    }
}

/// Unpacks [`encode`]. A negative number that is no known error decodes to `EIO`.
///
/// # Errors
/// The error that the register holds.
#[inline]
pub const fn decode(register: isize) -> CallResult {
    if register >= 0 { Ok(register as usize) } else { decode_error(register) }
}

#[cold]
const fn decode_error(register: isize) -> CallResult {
    if register < -4095 {
        return Err(Errno::EIO);
    }
    match Errno::from_number(-register as i32) {
        Some(error) => Err(error),
        None => Err(Errno::EIO),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_survives_the_register() {
        for &error in Errno::ALL {
            assert_eq!(decode(encode(Err(error))), Err(error));
        }
    }

    #[test]
    fn counts_survive_the_register() {
        for count in [0, 1, 4096, isize::MAX as usize] {
            assert_eq!(decode(encode(Ok(count))), Ok(count));
        }
    }

    #[test]
    fn garbage_is_an_error_and_not_a_count() {
        for register in [-4096, -4095, isize::MIN] {
            assert_eq!(decode(register), Err(Errno::EIO));
        }
    }
}
