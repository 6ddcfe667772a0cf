//! Keeps the processors of this host from sleeping.
//!
//! A processor without work sleeps, and wakes for the next request only after some time: in a
//! virtual machine a hundred microseconds and more, as much as a whole request. An emulated hart
//! that never sleeps keeps its processor awake, one that sleeps does not. Here all are kept awake,
//! so that what is compared is the systems that run on them.
//!
//! May touch: the priority of its own threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use crate::error::{Failure, Outcome};

/// Anything else comes first.
const NICE: i32 = 19;

/// While this lives, no processor sleeps.
pub struct Awake {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Awake {
    /// A thread of the lowest priority for each processor.
    ///
    /// # Errors
    /// The threads cannot be started, or not with that priority.
    pub fn keep() -> Outcome<Awake> {
        let count = thread::available_parallelism()
            .map_err(|error| Failure::new(format!("how many processors has this host? {error}")))?;
        let mut awake = Awake { is_over: Arc::default(), threads: Vec::new() };
        let (ready, all_ready) = mpsc::channel();
        for _ in 0..count.get() {
            let (is_over, ready) = (awake.is_over.clone(), ready.clone());
            let spin = move || {
                // Of this thread alone.
                let _ = ready.send(rustix::process::setpriority_process(None, NICE));
                drop(ready);
                while !is_over.load(Relaxed) {
                    std::hint::spin_loop();
                }
            };
            let thread = thread::Builder::new().name("awake".into()).spawn(spin);
            awake.threads.push(thread.map_err(|error| {
                Failure::new(format!("a processor cannot be kept awake: {error}"))
            })?);
        }
        drop(ready);
        for is_nice in all_ready {
            is_nice.map_err(|error| {
                Failure::new(format!("a thread does not get the lowest priority: {error}"))
            })?;
        }
        Ok(awake)
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    /// What the host says about one of the threads.
    #[derive(Debug)]
    struct Seen {
        /// The time that it has had a processor, in ticks of 10 ms.
        ticks: u64,
        nice: i64,
    }

    /// All threads of this name.
    fn of_threads() -> Vec<Seen> {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
        let fields = tasks.filter_map(|task| {
            let path = task.unwrap().path();
            let stat = read(&format!("{}/stat", path.display()));
            let (name, fields) = stat.rsplit_once(')')?;
            let fields: Vec<&str> = fields.split_whitespace().collect();
            name.ends_with("(awake").then(|| Seen {
                ticks: fields[11].parse().unwrap(),
                nice: fields[16].parse().unwrap(),
            })
        });
        fields.collect()
    }

    #[test]
    fn each_processor_has_a_thread_until_the_end() {
        let awake = Awake::keep().unwrap();
        let count = thread::available_parallelism().unwrap().get();
        let wait_until = |is_so: fn(&[Seen], usize) -> bool| {
            let begin = Instant::now();
            while !is_so(&of_threads(), count) {
                assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", of_threads());
                thread::sleep(Duration::from_millis(5));
            }
        };
        wait_until(|threads, count| {
            threads.iter().filter(|thread| thread.ticks > 0 && thread.nice == 19).count() >= count
        });
        drop(awake);
        // A thread that has been joined may be listed for a moment.
        wait_until(|threads, _| threads.is_empty());
    }
}
