//! `./cops build`: builds everything for the guest, without booting it.

use crate::build::Guest;
use crate::error::Outcome;
use crate::terminal::Progress;
use crate::toolchain::GuestToolchain;
use crate::workspace::Workspace;

pub fn run(workspace: &Workspace) -> Outcome<u8> {
    let toolchain = GuestToolchain::find(workspace, Progress::Lines)?;
    let guest = Guest::build(workspace, &toolchain, Progress::Lines)?;
    let programs: Vec<&str> = guest.programs.iter().map(|program| program.name.as_str()).collect();
    println!("toolchain  {}", guest.toolchain);
    println!("vDSO       {}", guest.vdso.object.display());
    println!("kernel     {}", guest.kernel.display());
    println!("programs   {}", programs.join(" "));
    Ok(0)
}
