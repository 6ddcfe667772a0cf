//! Runs `/bin/fuzz` in QEMU: system calls with nearly valid or arbitrary arguments. The seed is
//! always the same, so that a failed run can be repeated; `./cops fuzz --seed` tries others.

use super::{Case, Context, step};
use crate::commands::fuzz::{Campaign, campaign};
use crate::error::Outcome;

const CALLS: u64 = 100_000;
const SEED: u64 = 1;
const HARTS: [u32; 2] = [1, 4];

pub fn run(context: &Context<'_>) -> Outcome<Vec<Case>> {
    let prepared = context.prepared()?;
    let mut cases = Vec::new();
    for harts in HARTS {
        let name = format!("{CALLS} calls with seed {SEED}, {harts} harts");
        if !context.is_chosen(&name) {
            continue;
        }
        let mut step = step(&name);
        let wanted = Campaign { calls: CALLS, seed: SEED, first: 0, harts };
        let result = campaign(prepared, &wanted, |line| step.detail(line))?;
        cases.push(match result.wrong {
            None => Case::passed(name),
            Some(why) => Case::failed(name, why),
        });
    }
    Ok(cases)
}
