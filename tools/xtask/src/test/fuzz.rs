//! Runs `/bin/fuzz` in QEMU: system calls with nearly valid or arbitrary arguments, by native and
//! by Linux programs. The seed is always the same, so that a failed run can be repeated; `./cops
//! fuzz --seed` tries others.

use super::{Case, Context, step};
use crate::commands::fuzz::{Campaign, build_linux, campaign};
use crate::error::Outcome;

/// Number of calls by native programs.
const CALLS: u64 = 100_000;
/// Number of calls by Linux programs, which take longer.
const LINUX_CALLS: u64 = 50_000;
const SEED: u64 = 1;
const HARTS: [u32; 2] = [1, 4];

pub fn run(context: &Context<'_>) -> Outcome<Vec<Case>> {
    let prepared = context.prepared()?;
    let mut cases = Vec::new();
    for (is_linux, calls) in [(false, CALLS), (true, LINUX_CALLS)] {
        for harts in HARTS {
            let what = if is_linux { "calls of Linux" } else { "calls" };
            let name = format!("{calls} {what} with seed {SEED}, {harts} harts");
            if !context.is_chosen(&name) {
                continue;
            }
            let mut step = step(&name);
            let linux =
                if is_linux { Some(build_linux(context.workspace, &mut step)?) } else { None };
            let wanted = Campaign { calls, seed: SEED, first: 0, harts, linux };
            let result = campaign(prepared, &wanted, |line| step.detail(line))?;
            cases.push(match result.wrong {
                None => Case::passed(name),
                Some(why) => Case::failed(name, why),
            });
        }
    }
    Ok(cases)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    /// Numbers and names in lines `NAME = NUMBER;` of a table in `crates/abi`.
    fn calls_of_kernel(table: &str) -> impl Iterator<Item = (usize, String)> {
        table.lines().filter_map(|line| {
            let (name, number) = line.strip_suffix(';')?.split_once(" = ")?;
            // Constants have `const` before their name.
            let name = name.strip_prefix("    ").filter(|name| !name.contains(' '))?;
            Some((number.parse().ok()?, name.to_lowercase()))
        })
    }

    /// Numbers and names in lines `CALL(NUMBER, NAME, ...` of the program's table.
    fn calls_of_program(table: &str) -> impl Iterator<Item = (usize, String)> {
        table.lines().filter_map(|line| {
            let mut words = line.trim().strip_prefix("CALL(")?.split(", ");
            Some((words.next()?.parse().ok()?, words.next()?.trim_end_matches([')', ',']).into()))
        })
    }

    /// Numbers from here on are those of native programs only.
    const NATIVE: usize = 4096;

    #[test]
    fn linux_programs_make_each_call_of_the_kernel() {
        let native = calls_of_kernel(include_str!("../../../../crates/abi/src/syscall.rs"));
        let linux = calls_of_kernel(include_str!("../../../../crates/abi/src/linux.rs"));
        let mut kernel: BTreeMap<_, _> =
            native.chain(linux).filter(|(number, _)| *number < NATIVE).collect();
        assert!(kernel.len() > 140, "{kernel:?}");
        assert_eq!(kernel.insert(258, "riscv_hwprobe".into()).as_deref(), Some("hardware_probe"));
        let name = kernel.insert(259, "riscv_flush_icache".into());
        assert_eq!(name.as_deref(), Some("flush_icache"));
        let program: BTreeMap<_, _> =
            calls_of_program(include_str!("../../../../user/linux/fuzz/calls.h")).collect();
        let missing: Vec<_> =
            kernel.iter().filter(|call| program.get(call.0) != Some(call.1)).collect();
        assert!(missing.is_empty(), "not in user/linux/fuzz/calls.h: {missing:?}");
        let others: Vec<_> = program.keys().filter(|number| !kernel.contains_key(number)).collect();
        assert!(others.is_empty(), "the kernel does not have {others:?}");
    }
}
