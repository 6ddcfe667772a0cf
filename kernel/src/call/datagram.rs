//! Sends and receives of datagrams: `sendto`, `recvfrom`, `sendmsg` and their relatives, and
//! `readv` and `writev` of a UDP socket.
//!
//! A call moves one [`Message`], or one after the other those of an array of headers, which it
//! reads from the program's memory.
#![forbid(unsafe_code)]

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::net::SocketAddr;

use cops_abi::Errno;
use cops_abi::errno::CallResult;
use cops_abi::linux::{message, message_header as header};
use cops_fallible::try_box;

use super::long::FEW_ENTRIES;
use super::message::{Message, NamePlace, range};
use super::pieces::Pieces;
use crate::arch;
use crate::fs::{File, Object};
use crate::mm;
use crate::net::Received;
use crate::process::Process;
use crate::sched::Waiting;

/// A call that sends or receives a datagram, or several of them.
pub struct DatagramCall {
    /// A UDP socket.
    file: Arc<File>,
    direction: Waiting,
    options: DatagramOptions,
    /// The headers of `sendmsg` and its relatives.
    headers: Option<Headers>,
    message: Message,
    /// Whether the last attempt has done a portion, and there is more to do.
    is_portion_over: bool,
}

/// What the flags of a call ask for.
#[derive(Clone, Copy, Default)]
pub struct DatagramOptions {
    /// What is received can be received again.
    pub peeks: bool,
    /// The result of a receive is the length of the datagram, not that of its part that was stored.
    pub reports_length: bool,
    /// It fails with `EAGAIN` rather than wait.
    pub is_non_blocking: bool,
    /// Only for the first of several messages it waits.
    pub waits_for_one: bool,
}

/// Headers in the program's memory, which are read one after the other.
struct Headers {
    /// The next one, or that of which the message is being moved.
    at: usize,
    /// Whether that has been read.
    is_read: bool,
    /// `None`: there is one. Otherwise they are entries of an array, and this is how many of them
    /// there are behind this one.
    behind: Option<usize>,
    /// How many messages have been moved.
    done: usize,
    /// No other message is begun from then on.
    deadline_ticks: Option<u64>,
}

impl DatagramCall {
    fn new(
        file: Arc<File>,
        direction: Waiting,
        message: Message,
        headers: Option<Headers>,
        options: DatagramOptions,
    ) -> Result<Box<Self>, Errno> {
        mm::admit()?;
        let call = Self { file, direction, options, headers, message, is_portion_over: false };
        Ok(try_box(call)?)
    }

    /// Sends the bytes of `pieces` to `target`, or to the peer of the socket `file`.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn send(
        file: Arc<File>,
        pieces: Pieces,
        target: Option<SocketAddr>,
        options: DatagramOptions,
    ) -> Result<Box<Self>, Errno> {
        Self::new(file, Waiting::ToWrite, Message::new(pieces, target, None), None, options)
    }

    /// Receives a datagram into `pieces`, and the address of its sender at `name`.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn receive(
        file: Arc<File>,
        pieces: Pieces,
        name: Option<NamePlace>,
        options: DatagramOptions,
    ) -> Result<Box<Self>, Errno> {
        Self::new(file, Waiting::ToRead, Message::new(pieces, None, name), None, options)
    }

    /// The message of the header at `address`, or, if there is a `count`, those of an array of so
    /// many headers. After `deadline_ticks` none is begun.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn of_headers(
        file: Arc<File>,
        direction: Waiting,
        address: usize,
        count: Option<usize>,
        deadline_ticks: Option<u64>,
        options: DatagramOptions,
    ) -> Result<Box<Self>, Errno> {
        let behind = count.map(|count| count.saturating_sub(1));
        let headers = Headers { at: address, is_read: false, behind, done: 0, deadline_ticks };
        let message = Message::new(Pieces::of_range(range(0, 0)?), None, None);
        Self::new(file, direction, message, Some(headers), options)
    }

    /// The number of the operation for measurements.
    pub fn number(&self) -> u32 {
        if self.direction == Waiting::ToRead { 1 } else { 2 }
    }

    /// The file and the direction.
    pub fn file(&self) -> (&File, Waiting) {
        (&self.file, self.direction)
    }

    /// The number of messages that have been moved, if it moves several and has moved some: the
    /// result of the call if it is cut short.
    pub fn done(&self) -> Option<usize> {
        self.headers.as_ref().map(|headers| headers.done).filter(|&done| done > 0)
    }

    /// A signal is to end it. Returns whether it does: not while what was received is on its way,
    /// which would be lost. Then the call ends when it would wait for another message.
    pub fn interrupt(&mut self) -> bool {
        let is_interrupted = self.message.received.is_none();
        self.options.is_non_blocking |= !is_interrupted;
        is_interrupted
    }

    /// Whether the call fails if it would have to wait now.
    pub fn is_non_blocking(&self) -> bool {
        !self.is_portion_over && (self.options.is_non_blocking || self.file.is_non_blocking())
    }

    /// Whether only a portion is over: the next one is to follow, without an event.
    pub fn is_portion_over(&self) -> bool {
        self.is_portion_over
    }

    /// Does a portion; `None` if there is more to do, or it has to wait.
    #[inline(never)]
    pub fn attempt(&mut self, process: &Process) -> Option<CallResult> {
        self.is_portion_over = false;
        let result = self.attempt_message(process).and_then(|moved| match moved {
            Some(count) => self.finish_message(process, count),
            None => Ok(None),
        });
        match (result, self.done()) {
            (Ok(Some(count)), _) => Some(Ok(count)),
            // The next call finds the error, or waits.
            (Err(_), Some(done)) => Some(Ok(done)),
            (Err(error), None) => Some(Err(error)),
            (Ok(None), Some(done)) if self.is_non_blocking() => Some(Ok(done)),
            (Ok(None), _) => None,
        }
    }

    /// Moves the message; `None` if that is not all, or it has to wait.
    fn attempt_message(&mut self, process: &Process) -> Result<Option<usize>, Errno> {
        let Self { file, direction, options, headers, message, is_portion_over } = self;
        let Object::Datagrams(socket) = &file.object else { return Err(Errno::ENOTSOCK) };
        if let Some(headers) = headers.as_mut().filter(|headers| !headers.is_read) {
            *message = Message::read(&process.space, headers.at, *direction)?;
            headers.is_read = true;
            if message.pieces.entry_count() > FEW_ENTRIES {
                *is_portion_over = true;
                return Ok(None);
            }
        }
        if *direction == Waiting::ToWrite {
            return message.send(process, socket, is_portion_over);
        }
        let received = message.receive(process, socket, options.peeks, is_portion_over)?;
        let Some(Received { copied, length, sender }) = received else { return Ok(None) };
        if let Some(name) = &message.name {
            name.store(&process.space, sender)?;
        }
        if let Some(headers) = headers {
            let flags = if copied < length { message::TRUNCATED as u32 } else { 0 };
            // No control data.
            store(process, headers.at + header::CONTROL_BYTES, &[0; 8])?;
            store(process, headers.at + header::FLAGS, &flags.to_le_bytes())?;
        }
        Ok(Some(if options.reports_length { length } else { copied }))
    }

    /// A message of `count` bytes has been moved. Returns the result of the call, if it was the
    /// last one.
    fn finish_message(&mut self, process: &Process, count: usize) -> Result<Option<usize>, Errno> {
        self.message.received = None;
        let Some(headers) = &mut self.headers else { return Ok(Some(count)) };
        let Some(behind) = &mut headers.behind else { return Ok(Some(count)) };
        store(process, headers.at + header::BYTES, &(count as u32).to_le_bytes())?;
        headers.done += 1;
        let is_over = headers.deadline_ticks.is_some_and(|ticks| arch::now_ticks() >= ticks);
        if *behind == 0 || is_over {
            return Ok(Some(headers.done));
        }
        *behind -= 1;
        headers.at += header::ENTRY_BYTES;
        headers.is_read = false;
        self.options.is_non_blocking |= self.options.waits_for_one;
        self.is_portion_over = true;
        Ok(None)
    }
}

fn store(process: &Process, address: usize, bytes: &[u8]) -> Result<(), Errno> {
    Ok(process.space.copy_out(range(address, bytes.len())?, bytes)?)
}
