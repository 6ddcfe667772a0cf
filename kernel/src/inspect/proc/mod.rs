//! What the files in `/proc` contain (decision 38). Formats are those of Linux's proc(5).
//!
//! What COPS does not have is 0: docs/abi.md lists it.
#![forbid(unsafe_code)]

mod machine;
mod memory;
mod process;

use alloc::sync::Arc;
use core::fmt;

use cops_abi::Errno;
use cops_fallible::Text;

use crate::fs::{Bytes, Descriptor, Destination, Facts, File, Found, Subject, root_directory};
use crate::process::{Process, ProcessId, children};

/// The contents of the files.
pub static PROC: Proc = Proc;

/// See [`PROC`].
pub struct Proc;

/// Clock ticks in a second, in which times are shown. What every Linux says.
const CLOCK_TICKS: u64 = 100;
/// Bytes of memory in one of Linux's kB.
const KB: u64 = 1024;

/// The process, unless it has ended.
fn process(id: ProcessId) -> Result<Arc<Process>, Errno> {
    children::find(id).ok_or(Errno::ESRCH)
}

/// # Errors
/// `ESRCH` if there is a process that has ended and was waited for.
fn must_exist(id: ProcessId) -> Result<(), Errno> {
    let exists = id == 0 || children::at_or_after(id).is_some_and(|entry| entry.id == id);
    if exists { Ok(()) } else { Err(Errno::ESRCH) }
}

impl Facts for Proc {
    fn process_from(&self, id: ProcessId) -> Option<ProcessId> {
        children::at_or_after(id).map(|entry| entry.id)
    }

    fn may_examine(&self, viewer: ProcessId, id: ProcessId) -> bool {
        match (children::find(viewer), children::find(id)) {
            (Some(viewer), Some(process)) => viewer.check_authority_over(&process).is_ok(),
            // Of a process that has ended there is nothing to be seen.
            (viewer, None) => viewer.is_some(),
            (None, Some(_)) => false,
        }
    }

    fn text(&self, subject: Subject, id: ProcessId) -> Result<Text, Errno> {
        must_exist(id)?;
        let mut text = Text::new();
        let out = &mut text;
        let written: fmt::Result = match subject {
            Subject::Harts => machine::harts(out),
            Subject::FileSystems => machine::file_systems(out),
            Subject::Load => machine::load(out),
            Subject::Memory => machine::memory(out),
            Subject::Mounts => machine::mounts(out),
            Subject::Statistics => machine::statistics(out),
            Subject::Uptime => machine::uptime(out),
            Subject::Version => machine::version(out),
            Subject::HostName => machine::line(out, machine::HOST_NAME),
            Subject::Release => machine::line(out, machine::RELEASE),
            Subject::System => machine::line(out, machine::SYSTEM),
            Subject::LastProcess => machine::line(out, machine::LAST_PROCESS),
            Subject::Build => machine::line(out, machine::BUILD),
            Subject::Name => process::name(out, id),
            Subject::ProcessStatistics => process::statistics(out, id),
            Subject::ProcessMemory => process::memory(out, id),
            Subject::ProcessStatus => process::status(out, id),
        };
        written.map_err(|_| Errno::ENOMEM)?;
        Ok(text)
    }

    fn bytes(
        &self,
        subject: Bytes,
        id: ProcessId,
        offset: u64,
        bytes: &mut [u8],
    ) -> Result<usize, Errno> {
        must_exist(id)?;
        // One that has ended has neither arguments nor memory.
        let Ok(process) = process(id) else { return Ok(0) };
        let strings = process.program().strings;
        Ok(match subject {
            Bytes::Arguments => {
                memory::copy(&process, strings.arguments..strings.environment, offset, bytes)
            }
            Bytes::Environment => {
                memory::copy(&process, strings.environment..strings.end, offset, bytes)
            }
            Bytes::Regions => memory::regions(&process, offset, bytes),
        })
    }

    fn destination(&self, which: Destination, id: ProcessId) -> Result<Found, Errno> {
        let process = process(id).map_err(|_| Errno::ENOENT)?;
        Ok(match which {
            Destination::Working => Found { node: process.files.lock().working(), path: None },
            Destination::Root => Found { node: root_directory().clone(), path: None },
            Destination::Program => {
                let file = process.program().file;
                let path = Some(Text::try_from_str(&file.path)?);
                Found { node: file.node.clone(), path }
            }
        })
    }

    fn open_file(&self, id: ProcessId, descriptor: usize) -> Result<Arc<File>, Errno> {
        let process = process(id).map_err(|_| Errno::ENOENT)?;
        let file = process.files.lock().get(Descriptor(descriptor));
        file.map_err(|_| Errno::ENOENT)
    }

    fn descriptor_from(&self, id: ProcessId, from: usize) -> Option<usize> {
        process(id).ok()?.files.lock().next_from(from)
    }
}
