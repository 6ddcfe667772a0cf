//! The limit of open files of this program and its children. QEMU's user network and the load
//! generator have one for each connection, and the usual limit is 1,024.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::cli::CONNECTIONS_MAX;
use crate::error::{Failure, Outcome};

/// Files that a process has open besides connections.
const OTHER_FILES: u32 = 200;

/// Raises the limit to what the most connections need, as far as this host allows. Not further:
/// some programs go through all files that they could have open, and a host may allow a billion.
pub fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    if let Some(raised) = raised(limit) {
        // Whether it is enough is seen when there are so many connections.
        let _ = setrlimit(Resource::Nofile, raised);
    }
}

/// The limit that is to be set. `None`: it need not or cannot be raised.
fn raised(Rlimit { current, maximum }: Rlimit) -> Option<Rlimit> {
    let most = needed(CONNECTIONS_MAX);
    let wanted = maximum.map_or(most, |maximum| maximum.min(most));
    let is_less = current.is_some_and(|current| current < wanted);
    is_less.then_some(Rlimit { current: Some(wanted), maximum })
}

/// Fails if QEMU, or a program like this one, cannot have so many connections.
pub fn allow_files(connections: u32) -> Outcome<()> {
    let needed = needed(connections);
    match getrlimit(Resource::Nofile).current {
        Some(limit) if limit < needed => Err(Failure::new(format!(
            "{connections} connections need {needed} open files, and this host allows {limit}"
        ))
        .advise("raise the limit: ulimit -n")),
        _ => Ok(()),
    }
}

fn needed(connections: u32) -> u64 {
    u64::from(connections + OTHER_FILES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_as_far_as_allowed_and_needed() {
        let limit = |current, maximum| Rlimit { current, maximum };
        for (current, maximum, expected) in [
            (Some(1024), Some(4096), Some(4096)),
            (Some(1024), Some(1 << 30), Some(60_200)),
            (Some(1024), None, Some(60_200)),
            (Some(4096), Some(4096), None),
            (Some(1 << 20), Some(1 << 30), None),
            (None, None, None),
        ] {
            let raised = raised(limit(current, maximum));
            assert_eq!(raised.as_ref().and_then(|limit| limit.current), expected);
            assert!(raised.is_none_or(|limit| limit.maximum == maximum));
        }
    }
}
