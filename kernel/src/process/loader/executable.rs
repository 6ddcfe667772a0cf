//! The file that is to be executed, and its bytes.
//!
//! A file that can be written is copied into the program's pages while it is loaded, so a later
//! write does not change the program, and no writer is refused (decision 34). Its length is that at
//! the beginning. If it is shorter when it is read, it is not a program.
//!
//! The bytes of a file that a process serves are those that the kernel keeps, if there are any,
//! and otherwise come from its server, up to 16 KiB at a time (decision 49).

use alloc::boxed::Box;
use alloc::sync::Arc;

use cops_abi::Errno;
use cops_abi::file::mode;
use cops_algorithms::script::HEAD_BYTES;
use cops_fallible::{List, try_box};

use super::asking::{Asking, NOT_EXECUTABLE};
use crate::fs::{Answer, NodeRef, ServedNode};
use crate::mm::{MemoryObject, layout};

/// A file that is to be executed.
pub struct Executable {
    node: NodeRef,
    /// Its bytes, if they never change.
    image: Option<&'static [u8]>,
    /// Its length, once it is known that it may be executed.
    length: Option<usize>,
    /// What was read last, of another file.
    buffer: List<u8>,
    /// How far it has been read, if a process serves it. In a box, because it is large, and a
    /// program that is being loaded is moved often.
    served: Option<Box<Served>>,
}

/// How far a file that a process serves has been read.
#[derive(Default)]
struct Served {
    /// The last reply, and where in the file its data begin.
    reply: Option<(usize, Answer)>,
    /// The byte that the server has been asked for.
    asked: Option<usize>,
    /// How many of the bytes that are being read are in the buffer.
    done: usize,
}

impl Executable {
    /// The file at `node`.
    pub fn new(node: NodeRef) -> Self {
        let (length, buffer, served) = (None, List::new(), None);
        Self { image: node.image(), node, length, buffer, served }
    }

    /// Where it is.
    pub fn node(&self) -> &NodeRef {
        &self.node
    }

    /// Whether reading it costs next to nothing.
    pub fn is_image(&self) -> bool {
        self.image.is_some()
    }

    /// Its pages, if they never change.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn unchanging_object(&self) -> Result<Option<Arc<dyn MemoryObject>>, Errno> {
        if self.image.is_some() { self.node.clone().object().map(Some) } else { Ok(None) }
    }

    /// Its length in bytes; 0 before [`Self::head`].
    pub fn len(&self) -> usize {
        self.length.unwrap_or(0)
    }

    /// Its beginning, padded with zeros. `None`: it has to wait, and is to be repeated.
    ///
    /// # Errors
    /// `EACCES` if it is not a regular file, or has no permission to execute; as for
    /// [`Self::bytes`].
    pub fn head(&mut self, asking: &mut Asking) -> Result<Option<[u8; HEAD_BYTES]>, Errno> {
        let length = match self.length {
            Some(length) => length,
            None => {
                let status = asking.attempt(&self.node, |ask| self.node.status(ask));
                let Some(status) = status else { return Ok(None) };
                let status = status?;
                if self.node.kind() != mode::REGULAR || status.mode & 0o111 == 0 {
                    return Err(NOT_EXECUTABLE);
                }
                if self.image.is_none() {
                    self.buffer.try_resize(layout::PAGE_BYTES, 0)?;
                }
                if self.node.served().is_some() {
                    self.served = Some(try_box(Served::default())?);
                }
                *self.length.insert(status.size as usize)
            }
        };
        let mut head = [0; HEAD_BYTES];
        let count = length.min(HEAD_BYTES);
        let Some(bytes) = self.bytes(0, count, asking)? else { return Ok(None) };
        head[..count].copy_from_slice(bytes);
        Ok(Some(head))
    }

    /// The `count` bytes at `offset`, at most a page. `None`: it has to wait, and is to be repeated
    /// with the same arguments.
    ///
    /// # Errors
    /// `ENOEXEC` if the file ends before; `EIO`, `ENOMEM`, and what the server of the file replies.
    pub fn bytes(
        &mut self,
        offset: usize,
        count: usize,
        asking: &mut Asking,
    ) -> Result<Option<&[u8]>, Errno> {
        if let Some(bytes) = self.image {
            let bytes = bytes.get(offset..).and_then(|rest| rest.get(..count));
            return bytes.map(Some).ok_or(Errno::ENOEXEC);
        }
        if let Some(served) = &mut self.served {
            let file = (&self.node, self.length.unwrap_or(0));
            let has_read = served.read(file, offset, self.buffer.get_mut(..count), asking);
            if let Ok(false) = has_read {
                return Ok(None);
            }
            served.done = 0;
            has_read?;
        } else {
            let place = self.buffer.get_mut(..count).ok_or(Errno::ENOEXEC)?;
            let read = self.node.read_into(offset as u64, place).ok_or(NOT_EXECUTABLE)??;
            if read < count {
                return Err(Errno::ENOEXEC);
            }
        }
        self.buffer.get(..count).map(Some).ok_or(Errno::ENOEXEC)
    }
}

impl Served {
    /// Reads the bytes at `offset` of the file `node`, which has this length. Returns false if it
    /// has to wait.
    #[inline(never)]
    fn read(
        &mut self,
        (node, length): (&NodeRef, usize),
        offset: usize,
        into: Option<&mut [u8]>,
        asking: &mut Asking,
    ) -> Result<bool, Errno> {
        let (Some(into), Some(file)) = (into, node.served()) else { return Err(Errno::ENOEXEC) };
        if file.is_closed() {
            return Err(Errno::EIO);
        }
        if offset.checked_add(into.len()).is_none_or(|end| end > length) {
            return Err(Errno::ENOEXEC);
        }
        while self.done < into.len() {
            let at = self.asked.unwrap_or(offset + self.done);
            if self.asked.is_none() {
                let copied = self.copy(file, at, &mut into[self.done..]);
                if copied > 0 {
                    self.done += copied;
                    continue;
                }
                self.reply = None;
                self.asked = Some(at);
            }
            let reply = asking.attempt(node, |ask| file.read_pages(at as u64, length - at, ask));
            let Some(reply) = reply else { return Ok(false) };
            self.asked = None;
            let within = if file.pages().is_some() { at % layout::PAGE_BYTES } else { 0 };
            let (first, reply) = (at - within, reply?);
            if reply.bytes <= within {
                return Err(Errno::ENOEXEC);
            }
            self.reply = Some((first, reply));
        }
        Ok(true)
    }

    /// Copies what there is of the bytes at `at`: of a page that is mapped, of the last reply, or
    /// of a page that is kept. Returns their number.
    fn copy(&self, file: &ServedNode, at: usize, into: &mut [u8]) -> usize {
        let (number, within) = ((at / layout::PAGE_BYTES) as u64, at % layout::PAGE_BYTES);
        // Its server may not have it yet.
        let mapped = file.mapped().and_then(|file| file.page(number));
        if mapped.is_none()
            && let Some((first, reply)) = &self.reply
            && let Some(within) = at.checked_sub(*first)
            && within < reply.bytes
        {
            let count = into.len().min(reply.bytes - within);
            reply.read_data(within, &mut into[..count]);
            return count;
        }
        let kept = || file.pages().and_then(|(pages, node)| pages.page(node, number));
        let Some((frame, used)) = mapped.or_else(kept) else { return 0 };
        let count = into.len().min(used.saturating_sub(within));
        frame.read(within, &mut into[..count]);
        count
    }
}
