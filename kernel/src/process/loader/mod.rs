//! Loading programs: from an ELF file, or a script, to a process with its first virtual CPU in
//! the run queue.
//!
//! Loading is done in portions, and [`Stage`] says what exists after each. The program in memory is
//! made by [`image`], which `exec` uses too; [`find`] finds the file, [`executable`] reads it, what
//! is read there is in [`elf`], and the first stack with the arguments on it in [`stack`]. A
//! portion that needs the reply of a server ([`asking`]) ends, and is repeated when there is one.
#![forbid(unsafe_code)]

mod asking;
mod elf;
mod executable;
mod find;
mod image;
mod stack;

pub use asking::Asking;
pub use image::Image;
pub use stack::{Arguments, Start};

use alloc::boxed::Box;
use alloc::sync::Arc;

use cops_abi::{Errno, Priority};
use cops_executor::yield_now;
use cops_fallible::Text;

use super::number::{Number, Unstarted};
use super::signals::CpuSignals;
use super::spawn::Place;
use super::{Parts, PersonalityKind, Portion, Process, ProcessId, Thread, children, reaper};
use crate::fs::{self, Descriptor, FileTable, NodeRef, SharedAsk, terminal};
use crate::mm;
use crate::trace;

/// Starts the program at `path` with `arguments` as the first process, with the personality of its
/// file or the `forced` one.
///
/// # Errors
/// As for [`Loading::new`] and [`Loading::resume`].
pub async fn start_program(
    path: &str,
    arguments: Arguments,
    ceiling: Priority,
    forced: Option<PersonalityKind>,
) -> Result<Arc<Process>, Errno> {
    let path = Text::try_from_str(path)?;
    let mut loading = {
        let (working, place) = (fs::root_directory().clone(), Place::default());
        Loading::new(path, working, arguments, ceiling, place, None)?
    };
    if let Some(kind) = forced {
        loading.image.force(kind);
    }
    loop {
        if let Portion::Done(process) = loading.resume(None)? {
            return Ok(process);
        }
        // It never waits: the kernel asks no server.
        yield_now().await;
    }
}

/// A program that is being loaded for a new process. Dropping it frees everything.
pub struct Loading {
    image: Image,
    ceiling: Priority,
    /// Its files and its group.
    place: Place,
    stage: Stage,
}

/// What exists of the process. Each stage has what the next portion needs.
#[derive(Default)]
enum Stage {
    /// Nothing, also after the last portion and after a portion that failed.
    #[default]
    Nothing,
    /// Its number.
    Numbered(Number),
    /// Its memory, where the program is being made.
    Filling(Number, Box<Parts>),
    /// The process, and how its program begins.
    Complete(Unstarted, Start),
}

impl Loading {
    /// The program at `path`, which is to be started with `arguments` and this `ceiling` in this
    /// `place`. Relative paths begin in directory `working`, also those of the program. Without a
    /// parent, the kernel starts it.
    ///
    /// # Errors
    /// As for [`Image::new`].
    pub fn new(
        path: Text,
        working: NodeRef,
        arguments: Arguments,
        ceiling: Priority,
        place: Place,
        parent: Option<&Process>,
    ) -> Result<Self, Errno> {
        let image = Image::new(path, working, arguments, Asking::of(parent))?;
        Ok(Self { image, ceiling, place, stage: Stage::Nothing })
    }

    /// What a portion waits for that has ended with [`Portion::Waits`].
    pub fn awaited(&self) -> Option<SharedAsk> {
        self.image.awaited()
    }

    /// Executes a portion of some microseconds. When it is done, returns the process, which is a
    /// child of `parent` and runs.
    ///
    /// # Errors
    /// Those of [`Image::find_some`] and [`Image::resume`], and `EAGAIN` if there are too many
    /// processes.
    pub fn resume(&mut self, parent: Option<&Process>) -> Result<Portion<Arc<Process>>, Errno> {
        let step = self.step(parent);
        if let (Err(_), Some(parent)) = (&step, parent) {
            // Another virtual CPU of the parent may already be waiting for it.
            parent.child_ended.wake_all();
        }
        step
    }

    fn step(&mut self, parent: Option<&Process>) -> Result<Portion<Arc<Process>>, Errno> {
        self.stage = match core::mem::take(&mut self.stage) {
            Stage::Nothing => match self.image.find_some()? {
                // Before the long work, which would otherwise be useless. Everything is charged to
                // the new process.
                Portion::Done(()) => Stage::Numbered(Number::reserve(parent)?),
                Portion::More => return Ok(Portion::More),
                Portion::Waits => return Ok(Portion::Waits),
            },
            Stage::Numbered(number) => {
                let mut parts = Parts::allocate(number.family, trace::is_on())?;
                self.fill_table(&mut parts.files)?;
                Stage::Filling(number, parts)
            }
            Stage::Filling(number, parts) => match self.image.resume(&parts.areas())? {
                Portion::More => Stage::Filling(number, parts),
                Portion::Waits => {
                    self.stage = Stage::Filling(number, parts);
                    return Ok(Portion::Waits);
                }
                Portion::Done((start, personality)) => {
                    let what = (self.image.take_program(&start)?, personality);
                    let process = Process::new(number.id, parent, self.ceiling, what, *parts)?;
                    Stage::Complete(Unstarted { number, process }, start)
                }
            },
            Stage::Complete(unstarted, start) => {
                return self.start(unstarted, start, parent).map(Portion::Done);
            }
        };
        Ok(Portion::More)
    }

    /// Puts the files into the table of the new process, and frees the reference to them.
    fn fill_table(&mut self, table: &mut FileTable) -> Result<(), Errno> {
        table.set_working(self.image.working().clone());
        for (number, file) in self.place.files.iter_mut().enumerate() {
            if let Some(file) = file.take() {
                table.insert_at(Descriptor(number), file, false)?;
            }
        }
        Ok(())
    }

    /// Puts process `id` into its group, and the group into the foreground, before it runs.
    fn join_group(&self, parent: &Process, id: ProcessId) -> Result<(), Errno> {
        let Some(group) = self.place.group else { return Ok(()) };
        let group = if group == 0 { id } else { group };
        children::set_group(parent.id, id, group)?;
        match self.place.foreground {
            Some(settings) => terminal::set_foreground(parent.party(), group, Some(settings)),
            None => Ok(()),
        }
    }

    fn start(
        &self,
        unstarted: Unstarted,
        start: Start,
        parent: Option<&Process>,
    ) -> Result<Arc<Process>, Errno> {
        unstarted.start(parent, |process| {
            if let Some(parent) = parent {
                self.join_group(parent, process.id)?;
            }
            let thread = Thread::first(process.id);
            process.add_first_cpu(process.first_context(&start), thread, CpuSignals::default())
        })
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        // If the parent ended before loading was complete.
        self.stage = Stage::Nothing;
        // For what the address space has not freed at once. The space may also have been dropped
        // earlier, by a failed step.
        if mm::any_abandoned() {
            reaper::look();
        }
    }
}
