//! Replacing the program of a process (decision 28), in portions.
//!
//! The new program is loaded into an address space of its own. Until it is complete, the process is
//! as it was, and an error is the result of the call. Then comes what cannot fail: calls in flight
//! are cancelled, files are closed, and the two spaces exchange their contents.
#![forbid(unsafe_code)]

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::Ordering::*;

use cops_abi::Errno;
use cops_fallible::{Text, try_box};

use super::loader::{Image, Start};
use super::spawn::Request;
use super::undelivered::calls;
use super::{Personality, Process, SharedAreas, VirtualCpu, begin_page, reaper};
use crate::arch::UserContext;
use crate::mm::{self, AddressSpace};

/// Number of files that one portion closes.
const PORTION_FILES: usize = 4;

/// A program that is to replace that of a process. Dropping it before the process has changed
/// leaves the process as it was, except for calls that are cancelled.
pub struct Executing(Stage);

/// What is done. Each stage has what the next portion needs.
enum Stage {
    /// The arguments are being collected.
    Collecting(Text, Request),
    /// The new program is being loaded.
    Loading(Box<New>),
    /// It is complete. Calls of the old program, in the cells from this number on, are being
    /// cancelled.
    Cancelling(Box<New>, Ready, usize),
    /// Files are being closed.
    Closing(Box<New>, Ready),
    /// Nothing, after the last portion and after an error.
    Ended,
}

/// The new program, and afterwards what is left of the old one.
struct New {
    image: Image,
    space: AddressSpace,
}

/// A program that is complete.
struct Ready {
    start: Start,
    personality: Personality,
}

impl Executing {
    /// For `execve(path, argv, envp)`, of which `request` collects the strings.
    pub fn new(path: Text, request: Request) -> Self {
        Self(Stage::Collecting(path, request))
    }

    /// Executes a portion on behalf of `cpu`, the only one of its process. `None` if there is more
    /// to do; otherwise the registers with which the new program begins.
    ///
    /// Between two portions the virtual CPU returns to its call instruction, so the process changes
    /// in the last portion.
    pub fn resume(&mut self, cpu: &VirtualCpu) -> Result<Option<UserContext>, Errno> {
        let process = &cpu.process;
        self.0 = match core::mem::replace(&mut self.0, Stage::Ended) {
            Stage::Collecting(path, mut request) => {
                if request.collect(process)? {
                    Stage::Collecting(path, request)
                } else {
                    let image = Image::new(&path, request.take_arguments())?;
                    let space = AddressSpace::new(process.family)?;
                    Stage::Loading(try_box(New { image, space })?)
                }
            }
            Stage::Loading(mut new) => match new.image.resume(&process.areas(&new.space))? {
                None => Stage::Loading(new),
                // From here on nothing can fail.
                Some((start, personality)) => {
                    Stage::Cancelling(new, Ready { start, personality }, 0)
                }
            },
            Stage::Cancelling(new, ready, first) => match process.cancel_some(first) {
                Some(next) => Stage::Cancelling(new, ready, next),
                None => Stage::Closing(new, ready),
            },
            Stage::Closing(new, ready) => {
                for _ in 0..PORTION_FILES {
                    let file = process.files.lock().pop_close_on_exec();
                    if file.is_none() {
                        process.replace_program(&new.space, new.image.name(), ready.personality);
                        cpu.signals.forget_program();
                        return Ok(Some(process.first_context(&ready.start)));
                    }
                    // Without the table's lock: closing a file wakes waiting calls.
                    drop(file);
                }
                Stage::Closing(new, ready)
            }
            Stage::Ended => return Err(Errno::ENOEXEC),
        };
        Ok(None)
    }
}

impl Drop for Executing {
    fn drop(&mut self) {
        // If it failed, or the process has ended before the program was complete.
        self.0 = Stage::Ended;
        if mm::any_abandoned() {
            reaper::look();
        }
    }
}

impl Process {
    /// What a program of this process shares with the kernel, in `space`.
    fn areas<'a>(&'a self, space: &'a AddressSpace) -> SharedAreas<'a> {
        let (page, ring) = (&self.page, &self.ring);
        SharedAreas { space, page, ring, trace_pages: self.trace_pages.as_ref() }
    }

    /// Cancels calls in flight and drops results that wait, in a portion of the cells, from number
    /// `first` on. Returns the number to continue with; `None` if no call is left.
    ///
    /// The process makes no calls meanwhile.
    fn cancel_some(self: &Arc<Self>, first: usize) -> Option<usize> {
        if self.close_ring_some() {
            return Some(first);
        }
        let next = calls().cancel_some(self, first);
        if next.is_some() || self.calls_in_flight.count() == 0 {
            return next;
        }
        // Another hart is delivering a result.
        Some(0)
    }

    /// Replaces the program, of which the process makes no calls any more, by the one in `space`.
    fn replace_program(&self, space: &AddressSpace, name: &'static str, personality: Personality) {
        self.space.exchange(space);
        self.ring.reopen();
        self.page.clear();
        self.woken.store(0, SeqCst);
        self.interrupt_priority.store(None, SeqCst);
        *self.name.lock() = name;
        self.personality.become_other(personality);
        if let Some((cpu, _)) = self.cpus.lock().get(0) {
            cpu.forget_thread();
        }
        begin_page(&self.page, self.ceiling.priority());
    }
}
