//! Builds the vDSO image, and the one without priorities; a build fails if its checks do.

use super::{Case, Context};
use crate::build::vdso;
use crate::error::Outcome;
use crate::terminal::Progress;

pub fn run(context: &Context<'_>) -> Outcome<Vec<Case>> {
    let (workspace, toolchain) = (context.workspace, context.toolchain()?);
    let built = [
        ("image", vdso::build(workspace, toolchain, Progress::Transient)),
        (
            "image without priorities",
            vdso::build_first_come(workspace, toolchain, Progress::Transient),
        ),
    ];
    let cases = built.map(|(name, built)| match built {
        Ok(_) => Case::passed(name),
        Err(failure) => Case::failed(name, failure.to_string()),
    });
    Ok(cases.into())
}
