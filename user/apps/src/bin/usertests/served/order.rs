//! Priorities: which request a server reads first, and in which order the library handles them.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use cops::abi::Errno;
use cops::abi::file::{Status, mode};
use cops::fs::server::{Entries, FileSystem, Result as ServerResult};
use cops::sync::Mutex;
use cops::task::{self, JoinHandle, Priority};

use super::by_hand::Hand;
use super::*;
use crate::harness::Outcome;

tests! { served:
    the_most_urgent_request_is_read_first,
    a_request_follows_the_priority_of_its_caller,
    the_library_handles_the_most_urgent_first,
}

/// How many less urgent callers there are.
const OTHERS: usize = 100;
pub const URGENT: u32 = 5;
pub const LESS_URGENT: u32 = 50;

/// A caller that asks for the status of a name that does not exist.
pub fn caller(name: String, level: u32) -> JoinHandle<Option<Errno>> {
    let path = format!("/disk/{name}");
    let asks = async move { fs::metadata(&path).await.err().and_then(errno) };
    task::spawn_join(asks, Priority::saturating(level))
}

/// Lets all callers that are ready make their calls.
pub async fn all_have_asked() {
    let me = task::current();
    let set = |level| me.map(|me| task::set_priority(me, Priority::saturating(level)));
    set(63);
    task::yield_now().await;
    set(u32::from(Priority::DEFAULT.level()));
}

/// An urgent caller is served before a hundred less urgent ones that came first.
async fn the_most_urgent_request_is_read_first() -> Outcome {
    let mut hand = Hand::mounted().await?;
    let mut callers: Vec<_> =
        (0..OTHERS).map(|index| caller(format!("x{index:03}"), LESS_URGENT)).collect();
    all_have_asked().await;
    callers.push(caller("x-urgent".into(), URGENT));
    all_have_asked().await;
    let mut order = Vec::new();
    for _ in 0..=OTHERS {
        let (request, name) = hand.next().await?;
        order.push((request.priority, String::from_utf8(name).unwrap_or_default()));
        hand.answer(&request, b"x").map_err(Failure::from)?;
    }
    check_equal!(order[0], (URGENT, "x-urgent".into()), "the first request");
    for (index, (priority, name)) in order[1..].iter().enumerate() {
        check_equal!(
            (*priority, name.as_str()),
            (LESS_URGENT, format!("x{index:03}").as_str()),
            "request {index} of the others"
        );
    }
    for found in soon("the callers", join_all(callers)).await? {
        check_equal!(found?, Some(ENOENT), "what a caller found");
    }
    Ok(())
}

async fn a_request_follows_the_priority_of_its_caller() -> Outcome {
    let mut hand = Hand::mounted().await?;
    let callers: Vec<_> = (0..10).map(|index| caller(format!("x{index}"), LESS_URGENT)).collect();
    all_have_asked().await;
    let seventh = callers[7].id();
    task::set_priority(seventh, Priority::saturating(URGENT));
    all_have_asked().await;
    let mut order = Vec::new();
    for _ in 0..10 {
        let (request, name) = hand.next().await?;
        order.push((request.priority, String::from_utf8(name).unwrap_or_default()));
        hand.answer(&request, b"x").map_err(Failure::from)?;
    }
    check_equal!(order[0], (URGENT, "x7".into()), "the first request");
    check_equal!(order[1], (LESS_URGENT, "x0".into()), "the second request");
    soon("the callers", join_all(callers)).await?;
    Ok(())
}

/// Has no names, and notes which ones were looked up.
struct Notes(Arc<Mutex<Vec<(String, Priority)>>>);

impl FileSystem for Notes {
    async fn look_up(&self, _directory: u64, name: &str) -> ServerResult<Status> {
        self.0.lock().await.push((name.into(), task::current_priority()));
        Err(ENOENT)
    }

    async fn status(&self, node: u64) -> ServerResult<Status> {
        Ok(Status { number: node, ..Status::new(mode::DIRECTORY, 0o755) })
    }

    async fn read(&self, _node: u64, _offset: u64, _into: &mut [u8]) -> ServerResult<usize> {
        Err(EISDIR)
    }

    async fn list(&self, _: u64, _: u64, _: &mut Entries) -> ServerResult<()> {
        Ok(())
    }
}

/// All requests are there when the server begins: the urgent one is handled first, and each with
/// the priority of its caller.
async fn the_library_handles_the_most_urgent_first() -> Outcome {
    let server = server(0);
    server.mount(SERVED, ROOT).await?;
    let mut callers: Vec<_> =
        (0..OTHERS).map(|index| caller(format!("x{index:03}"), LESS_URGENT)).collect();
    all_have_asked().await;
    callers.push(caller("x-urgent".into(), URGENT));
    all_have_asked().await;
    let notes = Arc::new(Mutex::new(Vec::new()));
    let _serving = task::spawn_join(server.serve(Notes(notes.clone())), Priority::DEFAULT);
    soon("the callers", join_all(callers)).await?;
    let notes = notes.lock().await;
    check_equal!(notes.len(), OTHERS + 1, "requests");
    check_equal!(
        notes[0],
        ("x-urgent".into(), Priority::saturating(URGENT)),
        "what was handled first"
    );
    for (name, priority) in &notes[1..] {
        check_equal!(*priority, Priority::saturating(LESS_URGENT), "the priority for {name}");
    }
    Ok(())
}
