//! Prints the measurements: one line for each kind and detail of each hart. `./cops` parses these
//! lines.
#![forbid(unsafe_code)]

use core::fmt::{self, Write};

use cops_abi::inspect::{PortionRecord, portion, text};
use cops_abi::{linux, syscall};

use crate::drivers::console::{self, Channel};
use crate::portions;
use crate::sched::name_of_hold;
use crate::trace;

/// Prints a line for each record, if portions are measured. Called last before power off.
pub fn print() {
    let mut next = 0;
    while let Some((record, number)) = portions::at_or_after(next) {
        print_record(&record);
        next = number + 1;
    }
}

fn print_record(record: &PortionRecord) {
    let service = name_of(record);
    let what = match record.kind {
        portion::SYSTEM_CALL => {
            let number = record.detail as usize;
            syscall::name(number).or_else(|| linux::name(number)).unwrap_or("unknown")
        }
        portion::SERVICE => text(&service),
        portion::CALL => operation(record.detail),
        portion::RUN_QUEUE => name_of_hold(record.detail),
        portion::HANDLER => match record.detail {
            1 => "interprocessor",
            5 => "timer",
            9 => "device",
            _ => "unexpected",
        },
        _ => "",
    };
    let kind = portion::name(record.kind);
    let PortionRecord { hart, longest, count, about, about_1, about_2, about_3, .. } = *record;
    // Names of services contain blanks; a word of this line must not.
    let dashed = fmt::from_fn(|out| {
        what.chars().try_for_each(|letter| out.write_char(if letter == ' ' { '-' } else { letter }))
    });
    console::write_formatted(
        Channel::Kernel,
        format_args!(
            "portion: kind={kind} what={dashed} hart={hart} longest={longest} count={count} about={about:#x},{about_1:#x},{about_2:#x},{about_3:#x}\n"
        ),
    );
}

/// The name of the portion's service; zeros if it has none.
pub fn name_of(record: &PortionRecord) -> [u8; 16] {
    if record.kind == portion::SERVICE { trace::name_of(record.about) } else { [0; 16] }
}

/// The name of an operation, by `call::Operation::number`.
fn operation(number: u32) -> &'static str {
    match number {
        1 => "read",
        2 => "write",
        3 => "accept",
        4 => "connect",
        5 => "sleep",
        6 => "wait",
        7 => "disk",
        8 => "futex",
        9 => "path",
        10 => "poll",
        11 => "epoll",
        12 => "turn",
        _ => "none",
    }
}
