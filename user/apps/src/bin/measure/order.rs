//! The order in which a scheduler runs coroutines that are ready: what another scheduler image
//! changes (decision 57).

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Write as _;

use cops::task::{self, Priority};
use cops::thread::sync::Mutex;

/// Priorities of coroutines in the order in which they are spawned.
const LEVELS: [u8; 4] = [40, 20, 50, 0];

/// Spawns coroutines of several priorities and prints the order in which they run.
pub async fn run() {
    let ran = Arc::new(Mutex::new(Vec::new()));
    let mut handles = Vec::new();
    for level in LEVELS {
        let ran = ran.clone();
        let act = async move { ran.lock().push(level) };
        handles.push(task::spawn_join(act, Priority::saturating(level.into())));
    }
    for handle in handles {
        let _ = handle.await;
    }
    let mut line = String::from("order:");
    for level in ran.lock().iter() {
        let _ = write!(line, " {level}");
    }
    cops::println!("{line}");
}
