//! Memory, costs of switches, and many connections.

use super::data::{File, Material, Row};
use super::html::table;
use super::plot::{Axis, Scale, short};
use super::section::{Section, counted, judged, lines, plots};

/// A value for a table.
fn cell(row: &Row, path: &str) -> String {
    match row.number(path) {
        Some(number) => short(number),
        None if row.text(path).is_empty() => "–".to_owned(),
        None => row.text(path).to_owned(),
    }
}

fn table_of(file: &File, columns: &[(&str, &str)]) -> String {
    let rows =
        file.rows.iter().map(|row| columns.iter().map(|(path, _)| cell(row, path)).collect());
    let heading: Vec<&str> = columns.iter().map(|(_, title)| *title).collect();
    table(&heading, &rows.collect::<Vec<_>>())
}

pub fn memory(material: &Material) -> Section {
    let mut section = Section {
        id: "memory",
        title: "Memory: how many connections (000, Table 3)",
        what: "<p>The most connections that are open and idle at once, with 8 MiB of kernel heap, \
               26 MiB of frames and 2 MiB of user heap: in all 34 MiB of kernel memory, of which \
               4,000 connections may take 8.9 KB each.</p>"
            .to_owned(),
        expected: vec![
            "Paper 000: 385 connections with KCUC, 186 with KTUT.".to_owned(),
            "COPS: at least 4,000 with KCUC.".to_owned(),
        ],
        remarks: vec![
            "The paper's formula for a connection of KTUT is three threads with two stacks of 16 KiB \
             each; that of KCUC counts two stacks too, although its coroutines share theirs. Its \
             futures take 120, 80 and 64 bytes, and the kernel's coroutine of a read 176."
                .to_owned(),
            "COPS has one pool of frames, from which the kernel's heap grows, and no fixed heaps: once \
             the server listens, at most 34 MiB are free. What ends it is the quota of the process: \
             memory is charged when it is mapped, and a socket is charged the whole buffers that it \
             may grow to, so some of the 34 MiB are not used in the end. Each of the two buffers of \
             a connection has 2 KiB instead of 4, which is enough for the paper's messages."
                .to_owned(),
            "Each connection is opened and answered once, and then idle.".to_owned(),
        ],
        ..Section::default()
    };
    let theirs: Vec<Vec<String>> = material
        .paper("000", "table 3")
        .into_iter()
        .map(|row| vec!["Paper 000".to_owned(), row.shown("kcuc"), row.shown("ktut")])
        .collect();
    section.body += &table(&["Table 3", "KCUC", "KTUT"], &theirs);
    section.expects(material, &["memory", "idle-memory"]);
    match material.file("memory") {
        None => {}
        Some(file) => {
            for row in file.rows.iter().filter(|row| row.is("model", "kcuc")) {
                let most = row.number("max_connections").unwrap_or(0.0);
                section
                    .found
                    .push(judged(most >= 4000.0, &format!("KCUC holds {most:.0} connections.")));
            }
            section.body += &table_of(
                file,
                &[
                    ("model", "model"),
                    ("max_connections", "connections"),
                    ("kernel_bytes_per_connection", "kernel, bytes each"),
                    ("user_bytes_per_connection", "program, bytes each"),
                    ("frame_bytes_per_connection", "frames, bytes each"),
                    ("receive_coroutine_bytes", "coroutine that receives"),
                    ("multiply_coroutine_bytes", "that multiplies"),
                    ("send_coroutine_bytes", "that sends"),
                    ("ended_by", "what ended it"),
                ],
            );
            section.uses(file);
        }
    }
    if let Some(file) = material.file("idle-memory") {
        section.body += "<p>With buffers of 4 KiB, in a machine with enough memory, before the first request:</p>\n";
        section.body += &table_of(
            file,
            &[
                ("model", "model"),
                ("connections", "connections"),
                ("kernel_bytes_per_connection", "kernel, bytes each"),
                ("user_bytes_per_connection", "program, bytes each"),
                ("frame_bytes_per_connection", "frames, bytes each"),
            ],
        );
        section.uses(file);
    }
    section
}

pub fn switch(material: &Material) -> Section {
    let mut section = Section {
        id: "switch",
        title: "Switches and calls",
        what: "<p>What a switch from one coroutine, thread or process to another takes, and what a \
               call takes, in instructions of program and kernel together. <em>Allowed</em> is the \
               budget that the tests enforce (<code>docs/switch-budget.txt</code>). Linux's column is \
               the operation of <code>./cops bench costs</code> that is nearest: for a user-level \
               interrupt, a signal. <em>Out of order</em> is what the kind of yielding brings: pairs of \
               coroutines of two processes of which the less urgent one began first.</p>"
            .to_owned(),
        expected: vec![
            "The papers: a switch of coroutines needs neither the kernel nor a stack, a switch of \
             threads both."
                .to_owned(),
        ],
        ..Section::default()
    };
    section.expects(material, &["switch", "costs"]);
    match material.file("switch") {
        None => {}
        Some(file) => {
            let of =
                |op: &str| file.rows.iter().find(|row| row.is("op", op))?.number("instructions");
            let kinds = ["coroutine-wake-switch", "thread-wake-switch", "process-pipe-switch"];
            if let [Some(coroutine), Some(thread), Some(process)] = kinds.map(of) {
                section.found.push(judged(
                    coroutine < thread && thread < process,
                    &format!(
                        "To wake another one and wait takes a coroutine {coroutine:.0} \
                         instructions, a thread {:.1} times and a process {:.1} times as many.",
                        thread / coroutine,
                        process / coroutine
                    ),
                ));
            }
            let kinds = ["coroutine-switch", "coroutine-switch-strict"];
            if let [Some(relaxed), Some(strict)] = kinds.map(of) {
                section.found.push(format!(
                    "Strict yielding adds {:.0} instructions to a switch.",
                    strict - relaxed
                ));
                let of = |op: &str| {
                    let row = file.rows.iter().find(|row| row.is("op", op))?;
                    row.number("out_of_order").zip(row.number("pairs"))
                };
                if let [Some((relaxed, pairs)), Some((strict, _))] = kinds.map(of) {
                    section.found.push(judged(
                        strict <= relaxed,
                        &format!(
                            "Two processes with coroutines of the same eight priorities, all ready at \
                             once: with relaxed yielding, the less urgent one began first in \
                             {relaxed:.0} of {pairs:.0} pairs of coroutines; with strict yielding, in \
                             {strict:.0}."
                        ),
                    ));
                }
            }
            section.body += &table_of(
                file,
                &[
                    ("op", "operation"),
                    ("what", "what"),
                    ("instructions", "instructions"),
                    ("allowed", "allowed"),
                    ("linux_instructions", "Linux"),
                    ("out_of_order", "out of order"),
                    ("pairs", "of pairs"),
                ],
            );
            section.uses(file);
        }
    }
    if let Some(file) = material.file("costs") {
        section.body += "<p>What parts of the system cost a program for Linux, on COPS and on \
                         Linux:</p>\n";
        section.body += &table_of(
            file,
            &[
                ("name", "operation"),
                ("cops_instructions", "COPS"),
                ("linux_instructions", "Linux"),
                ("ratio", "ratio"),
            ],
        );
        section.uses(file);
    }
    section
}

pub fn scale(material: &Material) -> Section {
    let mut section = Section {
        id: "scale",
        title: "Ten thousand connections",
        what:
            "<p>Connections that are open at once, what each of them takes, and whether a request \
               costs more when many others are open.</p>"
                .to_owned(),
        expected: vec![
            "A packet costs the same with 10 connections and with 10,000: connections are found by \
             their addresses, and each has a socket set of its own."
                .to_owned(),
        ],
        remarks: vec![
            "Measured over a tap device. Over QEMU's user network a request seems to take a tenth \
             more instructions beside ten thousand connections: that network looks through all of \
             them for each frame, gets slow, and acknowledges every second answer in a frame of its \
             own, which the machine has to receive."
                .to_owned(),
        ],
        ..Section::default()
    };
    let files: Vec<&File> = material.files_of("scale").collect();
    section.expects(material, &["scale"]);
    for file in files {
        let rows: Vec<&Row> = file.rows.iter().collect();
        let connections = |row: &Row| row.number("connections");
        let x = || counted("connections");
        let bytes = |row: &Row| row.number("bytes_per_connection");
        let instructions = |row: &Row| row.number("instructions_per_request");
        let y = |label: &str| Axis::new(label, Scale::Linear);
        section.body += &plots(&[
            lines(
                "Bytes of a connection",
                &rows,
                "model",
                (&connections, x()),
                (&bytes, y("bytes")),
            ),
            lines(
                "Instructions of a request",
                &rows,
                "model",
                (&connections, x()),
                (&instructions, y("instructions")),
            ),
        ]);
        section.body += &table_of(
            file,
            &[
                ("model", "model"),
                ("connections", "connections"),
                ("bytes_per_connection", "bytes each"),
                ("throughput_rps", "answers a second"),
                ("instructions_per_request", "instructions"),
                ("latency_us.p50", "p50 us"),
                ("latency_us.p99", "p99 us"),
            ],
        );
        let of = |row: Option<&&Row>| Some((row?.number("connections")?, instructions(row?)?));
        if let Some(((few, least), (many, most))) = of(rows.first()).zip(of(rows.last())) {
            section.found.push(judged(
                most <= least * 1.1,
                &format!(
                    "A request takes {least:.0} instructions with {few:.0} connections, and \
                     {most:.0} with {many:.0}."
                ),
            ));
        }
        section.uses(file);
    }
    section
}
