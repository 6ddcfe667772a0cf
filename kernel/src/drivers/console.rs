//! The console: one serial port for the kernel's messages and the programs' streams.
//!
//! Output goes through a queue. A write moves bytes from the queue to the port as long as the port
//! takes them, at most [`SEND_BYTES`]; the transmit interrupt moves the rest. A program waits if
//! there is no room for its bytes ([`try_write`]). A part of the queue is reserved for the kernel's
//! own messages, which never wait: if that part is full, they are dropped and counted. Without
//! interrupts (during boot, without an interrupt line, and at power off) a full queue is emptied by
//! polling.
//!
//! [`service`] passes input on to an [`InputSink`]. While the sink has no room, bytes stay in the
//! port, which slows the sender down; no byte is lost.
//!
//! Interrupt handlers must not use the console, because it takes locks. A panic uses
//! [`Emergency`](super::emergency::Emergency).

use super::interrupt::Line;
use super::uart::Uart;
use crate::arch;
use crate::machine::device_tree;
use cops_algorithms::multiplexer::{Demultiplexer, GROWTH, Multiplexer, Received, SWITCH_BYTES};
use cops_algorithms::ring::Ring;
use cops_lock::Mutex;
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, Ordering};
use spin::Once;

pub use cops_algorithms::multiplexer::{Channel, Request};

const OUTPUT_BYTES: usize = 16 * 1024;
/// Bytes of the queue that are reserved for the kernel.
const RESERVE_BYTES: usize = 4 * 1024;
/// Maximum number of bytes taken from a program at once; they appear contiguously.
pub const PART_BYTES: usize = 1024;
/// Maximum number of bytes given to the port in one go, however fast it takes them.
const SEND_BYTES: usize = 1024;
/// Room that suffices for one part, whatever its bytes.
const PART_ROOM: usize = PART_BYTES * GROWTH + SWITCH_BYTES;

pub(super) static PORT: Once<Uart> = Once::new();
pub(super) static OUTPUT: Mutex<Output> = Mutex::new(Output {
    queue: Ring::new(),
    multiplexer: Multiplexer::new(false),
    has_interrupt: false,
    is_awaited: false,
    lost: 0,
});
/// Separates channels and requests in the input. Used by [`service`] alone.
static INPUT: Mutex<Demultiplexer> = Mutex::new(Demultiplexer::new(false));

pub(super) struct Output {
    queue: Ring<OUTPUT_BYTES>,
    multiplexer: Multiplexer,
    /// [`service`] runs and will send what the port does not take at once.
    has_interrupt: bool,
    /// A program's bytes have found no room: [`service`] must call the handler for room.
    is_awaited: bool,
    /// Number of kernel messages that were dropped and not yet reported.
    lost: usize,
}

/// The destination of input. The console's coroutine calls its functions.
pub trait InputSink: Sync {
    /// Whether it can take another byte. If not, it calls [`accept_input`] once it can.
    fn has_room(&self) -> bool;

    /// Takes a byte that was typed. There is room for it.
    fn take(&self, byte: u8);

    /// The input has ended.
    fn end(&self);

    /// All available input has been passed on for now: wakes a reader.
    fn commit(&self);
}

/// What the console's coroutine calls.
pub struct Handlers {
    /// The destination of input.
    pub input: &'static dyn InputSink,
    /// There is room for programs again.
    pub has_room: fn(),
    /// Answers a request of the host; may print.
    pub request: fn(Request),
}

static HANDLERS: Once<Handlers> = Once::new();

/// Sets the handlers. Must be called before [`service`] is spawned.
pub fn set_handlers(handlers: Handlers) {
    HANDLERS.call_once(|| handlers);
}

/// Opens the port that the device tree describes. Until then, or without a port, output goes
/// through the firmware.
pub fn initialise() {
    let facts = device_tree::facts();
    let multiplexed = cops_abi::bootargs::console_mode(facts.boot_arguments)
        == cops_abi::bootargs::ConsoleMode::Mux;
    if let Some(uart) = &facts.uart {
        let port = PORT.call_once(|| Uart::new(uart));
        port.initialise();
    }
    OUTPUT.lock().open(Multiplexer::new(multiplexed));
    *INPUT.lock() = Demultiplexer::new(multiplexed);
}

/// Writes bytes of the kernel to a channel, contiguously. Drops them if there is no room.
pub fn write(channel: Channel, bytes: &[u8]) {
    let mut output = OUTPUT.lock();
    if output.begin_message(bytes.len()) {
        output.put(channel, bytes);
    }
    output.send();
}

/// Like [`write()`], but waits for the port if there is no room: for output that the host has
/// requested.
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

/// Writes the first bytes of a program's output, at most [`PART_BYTES`], contiguously. Returns how
/// many. `None` means that there is no room; `Handlers::has_room` is called once there is.
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

/// Whether [`try_write`] would find room.
pub fn has_room() -> bool {
    OUTPUT.lock().has_room()
}

/// As [`has_room`]; if there is none, `Handlers::has_room` is called once there is.
pub fn has_room_or_notifies() -> bool {
    let mut output = OUTPUT.lock();
    let has_room = output.has_room();
    if !has_room {
        output.is_awaited = true;
        output.send();
    }
    has_room
}

/// From now on the port is polled, so that each write has left the queue when the call returns. For
/// the end of a run.
pub fn stop_interrupts() {
    let mut output = OUTPUT.lock();
    output.has_interrupt = false;
    output.send();
}

/// Writes formatted text of the kernel to a channel, contiguously; drops it if there is no room.
/// The text is formatted under the console's lock, so a `Display` must not write to the console.
pub fn write_formatted(channel: Channel, text: fmt::Arguments<'_>) {
    const USUAL_BYTES: usize = 256;
    let mut output = OUTPUT.lock();
    if output.begin_message(USUAL_BYTES) {
        // The writer drops pieces that find no room, so an error can only come from a `Display`.
        let _ = fmt::write(&mut ChannelWriter { output: &mut output, channel }, text);
    }
    output.send();
}

struct ChannelWriter<'a> {
    output: &'a mut Output,
    channel: Channel,
}

impl Write for ChannelWriter<'_> {
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
    /// Installs this multiplexer and sends a first channel mark, which tells the host that the port
    /// is open. Input that was sent before is lost.
    fn open(&mut self, mut multiplexer: Multiplexer) {
        multiplexer.encode(Channel::Kernel, &[], |byte| {
            self.queue.push(byte);
        });
        self.multiplexer = multiplexer;
        self.drain();
    }

    /// Whether there is room for any part of a program's output.
    fn has_room(&mut self) -> bool {
        if !self.has_interrupt && self.queue.room() < RESERVE_BYTES + PART_ROOM {
            self.drain();
        }
        self.queue.room() >= RESERVE_BYTES + PART_ROOM
    }

    /// Whether there is room for this many bytes of the kernel.
    fn has_room_for_message(&mut self, bytes: usize) -> bool {
        let needed = bytes * GROWTH + SWITCH_BYTES;
        if !self.has_interrupt && self.queue.room() < needed {
            self.drain();
        }
        self.queue.room() >= needed
    }

    /// Whether there is room for a message of this size. First reports the messages that were
    /// dropped before.
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
                let _ = writeln!(writer, "({lost} messages of the kernel were lost)");
            }
        }
        true
    }

    /// Appends bytes to the queue, which has room for them.
    fn put(&mut self, channel: Channel, bytes: &[u8]) {
        let queue = &mut self.queue;
        self.multiplexer.encode(channel, bytes, |byte| {
            let fits = queue.push(byte);
            debug_assert!(fits);
        });
    }

    /// Sends what the port takes now, at most [`SEND_BYTES`].
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

    /// Whether programs wait for room and there is some. Returns true once.
    fn take_awaited(&mut self) -> bool {
        let has_room = self.has_room();
        has_room && core::mem::take(&mut self.is_awaited)
    }

    /// Sends everything, waiting for the port.
    pub(super) fn drain(&mut self) {
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

/// Whether the port interrupts when input arrives.
static WANTS_INPUT: AtomicBool = AtomicBool::new(false);

/// Sets the port's interrupt sources. Called under the output lock.
fn update_interrupts(port: &Uart, wants_room: bool) {
    let wants_input = WANTS_INPUT.load(Ordering::Relaxed);
    if wants_room {
        // Disable it first: a port that already has room interrupts at the moment the source is
        // enabled, and not while it stays enabled.
        port.interrupt_on(wants_input, false);
    }
    port.interrupt_on(wants_input, wants_room);
}

/// Enables or disables interrupts for input. While disabled, bytes stay in the port. A sink that
/// has room again enables them.
pub fn accept_input(accept: bool) {
    WANTS_INPUT.store(accept, Ordering::Relaxed);
    let mut output = OUTPUT.lock();
    output.send(); // tells the port what to interrupt for
}

/// The console's coroutine, to be spawned once. Ends at once if the port has no interrupt; then
/// output is polled and there is no input.
pub async fn service() {
    let source = device_tree::facts().uart.as_ref().and_then(|uart| uart.interrupt);
    let (Some(source), Some(port), Some(handlers)) = (source, PORT.get(), HANDLERS.get()) else {
        return;
    };
    let line = Line::new(source);
    line.enable();
    OUTPUT.lock().has_interrupt = true;
    accept_input(true);
    loop {
        line.next().await;
        receive(port, handlers);
        let mut output = OUTPUT.lock();
        output.send();
        let is_awaited = output.take_awaited();
        drop(output);
        if is_awaited {
            (handlers.has_room)();
        }
        line.complete();
    }
}

/// Passes available input on.
fn receive(port: &Uart, handlers: &Handlers) {
    let sink = handlers.input;
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
        // A reader may have made room after the check above but before input was disabled.
        if sink.has_room() {
            accept_input(true);
        }
    }
    if any {
        sink.commit();
    }
    if let Some(request) = request {
        (handlers.request)(request);
    }
}
