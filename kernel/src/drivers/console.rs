//! The console: one serial port for the kernel's messages and the programs' streams.
//!
//! Output goes through a queue, which the writer empties into the port as far as the port takes it and as a
//! portion allows; the transmit interrupt does the rest. A program whose bytes find no room waits ([`try_write`]).
//! The kernel's own messages have a part of the queue for themselves and never wait: if that is full they are lost, and
//! counted. Where there is no interrupt (at boot, without a line, at the very end) a full queue is emptied by polling.
//! [`service`] passes input on to an [`InputSink`]. While that has no
//! room, the bytes stay in the port: the sender is slowed down and no byte is lost.
//!
//! Not for interrupt handlers, which take no locks. A panic has [`Emergency`].

use super::device_tree;
use super::interrupt::Line;
use super::multiplexer::{Demultiplexer, GROWTH, Multiplexer, Received, SWITCH_BYTES};
use super::uart::Uart;
use crate::arch;
use cops_algorithms::ring::Ring;
use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering};
use spin::{Mutex, Once};

pub use super::multiplexer::{Channel, Request};

const OUTPUT_BYTES: usize = 16 * 1024;
/// Bytes of the queue that programs leave to the kernel.
const RESERVE_BYTES: usize = 4 * 1024;
/// Bytes of a program that are taken at once, and appear together.
pub const PART_BYTES: usize = 1024;
/// Bytes that are given to the port before others have their turn, however fast it takes them.
const SEND_BYTES: usize = 1024;
/// Room for any part.
const PART_ROOM: usize = PART_BYTES * GROWTH + SWITCH_BYTES;

static PORT: Once<Uart> = Once::new();
static OUTPUT: Mutex<Output> = Mutex::new(Output {
    queue: Ring::new(),
    multiplexer: Multiplexer::new(false),
    has_interrupt: false,
    is_awaited: false,
    lost: 0,
});
/// Takes the line apart. Used by [`service`] alone.
static INPUT: Mutex<Demultiplexer> = Mutex::new(Demultiplexer::new(false));

struct Output {
    queue: Ring<OUTPUT_BYTES>,
    multiplexer: Multiplexer,
    /// [`service`] runs and will go on with what the port does not take at once.
    has_interrupt: bool,
    /// A program's bytes have found no room: [`service`] says when there is some.
    is_awaited: bool,
    /// Messages of the kernel that found no room and have not been reported.
    lost: usize,
}

/// Where input goes. Its functions are called by the console's coroutine.
pub trait InputSink: Sync {
    /// Whether it takes another byte. If not, it calls [`resume_input`] once it does.
    fn has_room(&self) -> bool;

    /// Takes a byte that was typed. There is room for it.
    fn take(&self, byte: u8);

    /// No more bytes will come.
    fn end(&self);

    /// All that has come in for now has been passed on.
    fn settle(&self);
}

/// Where input goes: nowhere, until it is set.
static SINK: Once<&'static dyn InputSink> = Once::new();

/// Sets where input goes; the first choice counts. To be called before [`service`] is spawned.
pub fn set_input_sink(sink: &'static dyn InputSink) {
    SINK.call_once(|| sink);
}

/// Opens the port the tree names. Until then, and without one, output goes through the
/// firmware.
pub fn initialise() {
    let facts = device_tree::facts();
    let multiplexed =
        cops_abi::bootargs::console_mode(facts.boot_arguments) == cops_abi::bootargs::ConsoleMode::Mux;
    if let Some(uart) = &facts.uart {
        let port = PORT.call_once(|| Uart::new(uart));
        port.initialise();
    }
    OUTPUT.lock().open(Multiplexer::new(multiplexed));
    *INPUT.lock() = Demultiplexer::new(multiplexed);
}

/// Writes bytes of the kernel's to a channel; they appear together. They are lost if there is no room.
pub fn write(channel: Channel, bytes: &[u8]) {
    let mut output = OUTPUT.lock();
    if output.begin_message(bytes.len()) {
        output.put(channel, bytes);
    }
    output.send();
}

/// As [`write()`], but waits for the port if there is no room: for what is written out at the request of the other side.
pub fn write_waiting(channel: Channel, bytes: &[u8]) {
    let mut output = OUTPUT.lock();
    for part in bytes.chunks(PART_BYTES) {
        if output.queue.room() < PART_ROOM {
            output.drain();
        }
        output.put(channel, part);
    }
    output.send();
}

/// Writes the first bytes of a program's, at most [`PART_BYTES`]; they appear together. Returns how many; `None`: there
/// is no room, and the room handler is called when there is.
pub fn try_write(channel: Channel, bytes: &[u8]) -> Option<usize> {
    let part = &bytes[..bytes.len().min(PART_BYTES)];
    let mut output = OUTPUT.lock();
    if !output.has_room() {
        output.send();
        if !output.has_room() {
            output.is_awaited = true;
            output.send();
            return None;
        }
    }
    output.put(channel, part);
    output.send();
    Some(part.len())
}

/// Whether [`try_write`] finds room.
pub fn has_room() -> bool {
    OUTPUT.lock().has_room()
}

/// From now on the port is polled: what is written is on its way when the call returns. For the end of a run.
pub fn stop_interrupts() {
    let mut output = OUTPUT.lock();
    output.has_interrupt = false;
    output.send();
}

/// Who hears that there is room again for programs.
static ROOM_HANDLER: Once<fn()> = Once::new();

/// Chooses who hears that there is room again; the first choice counts. Called by the console's coroutine.
pub fn set_room_handler(handler: fn()) {
    ROOM_HANDLER.call_once(|| handler);
}

/// Writes a formatted text of the kernel's to a channel; it appears together, or is lost if there is no room. Formatting
/// happens under the console's lock, so it must not write to the console itself.
pub fn write_formatted(channel: Channel, text: fmt::Arguments<'_>) {
    const USUAL_BYTES: usize = 256;
    let mut output = OUTPUT.lock();
    if output.begin_message(USUAL_BYTES) {
        // Pieces that find no room are dropped, so only a failing `Display` is lost here.
        let _ = fmt::write(&mut ChannelWriter { output: &mut output, channel }, text);
    }
    output.send();
}

struct ChannelWriter<'a> {
    output: &'a mut Output,
    channel: Channel,
}

impl fmt::Write for ChannelWriter<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for part in text.as_bytes().chunks(PART_BYTES) {
            if self.output.has_room_for_message(part.len()) {
                self.output.put(self.channel, part);
            }
        }
        Ok(())
    }
}

impl Output {
    /// Starts with this multiplexer, and with a first mark: it tells the other side that the port is
    /// open. What was sent to it before is lost.
    fn open(&mut self, mut multiplexer: Multiplexer) {
        multiplexer.encode(Channel::Kernel, &[], |byte| {
            self.queue.push(byte);
        });
        self.multiplexer = multiplexer;
        self.drain();
    }

    /// Whether any part of a program's bytes fits.
    fn has_room(&mut self) -> bool {
        if !self.has_interrupt && self.queue.room() < RESERVE_BYTES + PART_ROOM {
            self.drain();
        }
        self.queue.room() >= RESERVE_BYTES + PART_ROOM
    }

    /// Whether so many bytes of the kernel's fit.
    fn has_room_for_message(&mut self, bytes: usize) -> bool {
        let needed = bytes * GROWTH + SWITCH_BYTES;
        if !self.has_interrupt && self.queue.room() < needed {
            self.drain();
        }
        self.queue.room() >= needed
    }

    /// Whether a message of so many bytes can begin; first reports those that were lost before it.
    fn begin_message(&mut self, bytes: usize) -> bool {
        const REPORT_BYTES: usize = 80;
        if !self.has_room_for_message(bytes + REPORT_BYTES) {
            self.lost += 1;
            return false;
        }
        match core::mem::take(&mut self.lost) {
            0 => {}
            lost => {
                let mut writer = ChannelWriter { output: self, channel: Channel::Kernel };
                let _ = fmt::write(&mut writer, format_args!("({lost} messages of the kernel were lost)\n"));
            }
        }
        true
    }

    /// Puts bytes into the queue, which has room for them.
    fn put(&mut self, channel: Channel, bytes: &[u8]) {
        let queue = &mut self.queue;
        self.multiplexer.encode(channel, bytes, |byte| {
            let fits = queue.push(byte);
            debug_assert!(fits);
        });
    }

    /// Sends what the port takes now, a portion of it.
    fn send(&mut self) {
        if !self.has_interrupt {
            return self.drain();
        }
        let Some(port) = PORT.get() else { return };
        let mut left = SEND_BYTES;
        port.send(|| {
            left = left.checked_sub(1)?;
            self.queue.pop()
        });
        update_interrupts(port, self.is_awaited || !self.queue.is_empty());
    }

    /// There is room for programs that wait for it: says so once.
    fn take_awaited(&mut self) -> bool {
        let has_room = self.has_room();
        has_room && core::mem::take(&mut self.is_awaited)
    }

    /// Sends everything, waiting for the port.
    fn drain(&mut self) {
        let Some(port) = PORT.get() else {
            while let Some(byte) = self.queue.pop() {
                arch::emergency_write(&[byte]);
            }
            return;
        };
        let queue = &mut self.queue;
        while !port.send(|| queue.pop()) {
            core::hint::spin_loop();
        }
    }
}

/// Whether bytes that come in are to interrupt.
static WANTS_INPUT: AtomicBool = AtomicBool::new(false);

/// Tells the port what to interrupt for. Under the output lock.
fn update_interrupts(port: &Uart, wants_room: bool) {
    let wants_input = WANTS_INPUT.load(Ordering::Relaxed);
    if wants_room {
        // Off first: a port that has room already interrupts when this is switched on, not while it is on.
        port.interrupt_on(wants_input, false);
    }
    port.interrupt_on(wants_input, wants_room);
}

/// The sink has room again: input that waits in the port is taken.
pub fn resume_input() {
    accept_input(true);
}

/// Lets bytes interrupt that wait in the port, or leaves them there.
fn accept_input(accept: bool) {
    WANTS_INPUT.store(accept, Ordering::Relaxed);
    let mut output = OUTPUT.lock();
    output.send(); // tells the port what to interrupt for
}

/// Who answers requests of the other side.
static REQUEST_HANDLER: Once<fn(Request)> = Once::new();

/// Chooses who answers requests of the other side; the first choice counts. `handler` is called
/// by the console's coroutine and may print.
pub fn set_request_handler(handler: fn(Request)) {
    REQUEST_HANDLER.call_once(|| handler);
}

/// The console's coroutine: to be spawned once. Ends at once if the port has no interrupt,
/// in which case output is polled and there is no input.
pub async fn service() {
    let source = device_tree::facts().uart.as_ref().and_then(|uart| uart.interrupt);
    let (Some(source), Some(port)) = (source, PORT.get()) else { return };
    let line = Line::new(source);
    line.enable();
    OUTPUT.lock().has_interrupt = true;
    accept_input(true);
    loop {
        line.next().await;
        receive(port);
        let mut output = OUTPUT.lock();
        output.send();
        let is_awaited = output.take_awaited();
        drop(output);
        if is_awaited && let Some(handler) = ROOM_HANDLER.get() {
            handler();
        }
        line.complete();
    }
}

/// Passes on what has come in.
fn receive(port: &Uart) {
    let Some(sink) = SINK.get() else { return };
    let mut request = None;
    let mut any = false;
    let mut demultiplexer = INPUT.lock();
    let mut has_room = sink.has_room();
    while has_room && let Some(byte) = port.receive() {
        match demultiplexer.decode(byte) {
            Received::Byte(byte) => {
                sink.take(byte);
                any = true;
                has_room = sink.has_room();
            }
            Received::EndOfInput => {
                sink.end();
                any = true;
            }
            Received::Request(asked) => request = Some(asked),
            Received::Nothing => {}
        }
    }
    drop(demultiplexer);
    if !has_room {
        accept_input(false);
        // A reader may have made room in between, when it found that input was still accepted.
        if sink.has_room() {
            accept_input(true);
        }
    }
    if any {
        sink.settle();
    }
    if let (Some(request), Some(handler)) = (request, REQUEST_HANDLER.get()) {
        handler(request);
    }
}

/// The console after a panic and at the very end: takes the port over by polling, whoever
/// holds the lock.
pub struct Emergency {
    multiplexer: Multiplexer,
}

impl Emergency {
    /// Takes over; what is in the queue is sent first, if the lock is to be had.
    pub fn take_over() -> Self {
        for _ in 0..1_000_000 {
            if let Some(mut output) = OUTPUT.try_lock() {
                output.drain();
                // Nobody else writes any more.
                core::mem::forget(output);
                break;
            }
            core::hint::spin_loop();
        }
        let arguments = device_tree::try_facts().map_or("", |facts| facts.boot_arguments);
        let mode = cops_abi::bootargs::console_mode(arguments);
        Self { multiplexer: Multiplexer::new(mode == cops_abi::bootargs::ConsoleMode::Mux) }
    }

    /// Says how the run ended. The last thing to be said.
    pub fn exit(&mut self, status: u8) {
        self.multiplexer.encode_exit(status, put_polling);
    }
}

impl fmt::Write for Emergency {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.multiplexer.encode(Channel::Kernel, text.as_bytes(), put_polling);
        Ok(())
    }
}

fn put_polling(byte: u8) {
    let Some(port) = PORT.get() else { return arch::emergency_write(&[byte]) };
    let mut rest = Some(byte);
    // A port that never gets ready must not keep the machine from ending.
    for _ in 0..10_000_000 {
        if port.send(|| rest.take()) || rest.is_none() {
            return;
        }
    }
}
