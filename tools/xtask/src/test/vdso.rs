//! Builds the vDSO image; the build fails if its checks do.

use super::{Case, Context};
use crate::build::vdso;
use crate::error::Outcome;
use crate::terminal::Progress;

pub fn run(context: &Context<'_>) -> Outcome<Vec<Case>> {
    let built = vdso::build(context.workspace, context.toolchain()?, Progress::Transient);
    Ok(vec![match built {
        Ok(_) => Case::passed("image"),
        Err(failure) => Case::failed("image", failure.to_string()),
    }])
}
