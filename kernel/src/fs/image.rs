//! The root image: a read-only archive in memory, packed by the build and found through the device
//! tree.

pub use cops_algorithms::archive::{Archive, Node};
use cops_fallible::OutOfMemory;
use spin::Once;
use tar_no_std::TarArchiveRef;

static ROOT: Once<Archive> = Once::new();

/// Makes `archive` the root image; only the first call has an effect. Returns the number of files
/// in it.
///
/// # Panics
/// Without memory for the list of files, which can happen only at boot.
pub fn set_root(archive: &'static [u8]) -> usize {
    ROOT.call_once(|| read(archive).expect("there is memory for the list of files")).len()
}

/// The root image; empty if none was found.
pub fn root() -> &'static Archive {
    ROOT.call_once(Archive::default)
}

fn read(archive: &'static [u8]) -> Result<Archive, OutOfMemory> {
    let mut files = Archive::default();
    if let Ok(archive) = TarArchiveRef::new(archive) {
        for entry in archive.entries() {
            if let Ok(name) = entry.filename().as_str() {
                files.add(name, entry.data())?;
            }
        }
    }
    Ok(files)
}
